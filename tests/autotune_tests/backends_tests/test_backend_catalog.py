"""Every kind of target has one backend."""

from __future__ import annotations

from autotune.backends.backend_catalog import BACKENDS, backend_of
from schedules.target import Target
from schedules.template_sets import TEMPLATE_SETS


def test_a_target_is_served_by_the_backend_of_its_kind() -> None:
    assert backend_of(Target("llvm", isa="avx2")).kind == "llvm"
    assert backend_of(Target.cuda("sm_90")).kind == "cuda"


def test_every_kind_has_templates_and_a_backend() -> None:
    assert set(BACKENDS) == set(TEMPLATE_SETS)
    assert all(backend().kind == kind for kind, backend in BACKENDS.items())


def test_every_backend_shows_the_scheduled_program() -> None:
    assert all("tir" in backend().forms for backend in BACKENDS.values())
