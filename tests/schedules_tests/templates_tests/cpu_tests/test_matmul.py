"""Products with a packed weight: the space's limits."""

from __future__ import annotations

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.cpu.matmul import CHUNKS
from tests.schedules_tests.programs import matmul_case

TARGET = Target("llvm", isa="avx512", threads=2)


def test_tiles_fit_the_register_file_and_divide_their_rows() -> None:
    space = claim(matmul_case("m", 48, 96, 12, 16).func, TARGET).space
    columns = space.columns(space.rows)
    assert (columns["tm"] * columns["tn"] <= TARGET.vector_registers - 4).all()
    assert (columns["rows"] % columns["tm"] == 0).all()


def test_sums_are_cut_only_where_rows_share_a_chunk() -> None:
    long = {knob.name: knob.choices for knob in claim(matmul_case("m", 16, 1536, 2, 16).func, TARGET).space.knobs}
    assert long["depth"][-1] == 1536
    assert all(CHUNKS[0] <= part <= CHUNKS[1] for part in long["depth"][:-1])
    assert len(long["depth"]) > 1
    vector = {knob.name: knob.choices for knob in claim(matmul_case("m", 1, 1536, 2, 16).func, TARGET).space.knobs}
    assert vector["depth"] == (1536,)
