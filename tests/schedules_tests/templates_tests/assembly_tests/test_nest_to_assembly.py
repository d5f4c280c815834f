"""Every nest has a writer, or says that the compiler makes it; the text has the tile that the nest says."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.lower import claim
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.instructions.hot_loop import hot_loop
from schedules.templates.nests.loop_nest import Role
from schedules.templates.nests.nested_template import to_assembly
from tests.schedules_tests.programs import Case
from tests.schedules_tests.templates_tests.assembly_tests.assembled import TARGET
from tests.schedules_tests.templates_tests.nests_tests.nest_cases import NESTED, is_direct, nest_of

SAMPLED = 6
WITHOUT_PRODUCTS_AFTER = ("conv2d_1x1", "conv2d_3x3", "conv2d_first_layer", "matmul_vector_bare")
"""Cases whose epilogue has no multiply-adds."""
WRITTEN = ("conv2d_1x1", "conv2d_3x3", "conv2d_first_layer", "matmul_rows", "matmul_prime", "matmul_long")


@pytest.mark.parametrize("case", NESTED, ids=lambda case: case.name)
def test_a_nest_is_written_or_left_to_the_compiler(case: Case) -> None:
    for config in filter(is_direct, claim(case.func, TARGET).space.sample(SAMPLED, np.random.default_rng(3))):
        try:
            text = to_assembly(case.func, nest_of(case.func, config, whole=False), TARGET, "k")
        except OutOfScope:
            assert case.name not in WRITTEN
            continue
        assert "__tvm_ffi_k:" in text


@pytest.mark.parametrize("name", WITHOUT_PRODUCTS_AFTER)
def test_the_innermost_loop_has_whole_tiles_of_the_nest(name: str) -> None:
    """All sums of a tile, of the nest's or of a narrower last one, get a product in each step."""
    func = next(case.func for case in NESTED if case.name == name)
    looped = 0
    for config in filter(is_direct, claim(func, TARGET).space.sample(20, np.random.default_rng(4))):
        nest = nest_of(func, config, whole=False)
        loop = hot_loop(to_assembly(func, nest, TARGET, "k"))
        if loop is None:
            continue
        looped += 1
        last = nest.size("ow") % nest.extent(Role.REGISTER, axis="ow") if "ow" in nest.ragged else 0
        tiles = {nest.vectors * nest.numbers, nest.vectors * nest.extent(Role.REGISTER, axis="oh") * last} - {0}
        assert any(loop.products % (tile * nest.extent(Role.STEP)) == 0 for tile in tiles), config.to_json()
    assert looped
