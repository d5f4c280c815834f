"""Every kind of target has its set of templates, and what the importer reads off it."""

from __future__ import annotations

import pytest

from schedules.target import Target
from schedules.template_sets import TEMPLATE_SETS, template_set
from schedules.vocabulary.errors import UsageError

CPU = Target("llvm", isa="avx2", mcpu="haswell", features=("+fma",), threads=3)


def test_a_target_gets_the_set_of_its_kind() -> None:
    for target in (CPU, Target.cuda("sm_90")):
        assert template_set(target).kind == target.kind


@pytest.mark.parametrize("kind", ["llvm", "cuda", "opencl"])
def test_a_target_can_be_made_of_every_kind_with_a_set_and_of_no_other(kind: str) -> None:
    if kind in TEMPLATE_SETS:
        assert Target(kind, isa="avx2").kind == kind
    else:
        with pytest.raises(UsageError):
            Target(kind, isa="avx2")


def test_identities_differ_across_sets() -> None:
    names = [
        f"{template.name}/{template.version}" for chosen in TEMPLATE_SETS.values() for template in chosen.templates
    ]
    assert len(set(names)) == len(names)


def test_tvm_s_target_has_the_fields_of_ours() -> None:
    native = template_set(CPU).tvm_target(CPU)
    assert (str(native.attrs["mcpu"]), int(native.attrs["num-cores"])) == ("haswell", 3)
    assert [str(flag) for flag in native.attrs["mattr"]] == ["+fma"]
    assert str(template_set(Target.cuda("sm_80")).tvm_target(Target.cuda("sm_80")).attrs["arch"]) == "sm_80"


def test_layouts_and_types_that_the_importer_asks_for() -> None:
    assert (TEMPLATE_SETS["llvm"].half_native, TEMPLATE_SETS["llvm"].channels_last) == (False, False)
    assert (TEMPLATE_SETS["cuda"].half_native, TEMPLATE_SETS["cuda"].channels_last) == (True, True)
