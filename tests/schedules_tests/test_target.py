"""Targets as values: text and back, fingerprints, and nonsense refused at birth."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules.processors import INSTRUCTION_SETS
from schedules.target import CUDA_ARCHS, Target
from schedules.vocabulary.errors import UsageError

names = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=6)

targets = st.builds(
    Target,
    kind=st.just("llvm"),
    isa=st.sampled_from(sorted(INSTRUCTION_SETS)),
    mcpu=names,
    features=st.lists(names, max_size=2).map(tuple),
    threads=st.integers(1, 64),
    l1_bytes=st.integers(1, 2**20),
    l2_bytes=st.integers(1, 2**24),
    l3_bytes=st.integers(0, 2**30),
)


@given(targets)
def test_targets_come_back_from_text(target: Target) -> None:
    assert Target.from_json(target.to_json()) == target
    assert Target.from_json(target.to_json()).fingerprint == target.fingerprint
    assert target.lanes(4) * 4 == target.vector_bytes


@given(targets)
def test_fingerprints_tell_all_but_the_shared_cache_apart(target: Target) -> None:
    assert dataclasses.replace(target, l3_bytes=target.l3_bytes + 1).fingerprint == target.fingerprint
    for field in ("threads", "l1_bytes", "l2_bytes"):
        other = dataclasses.replace(target, **{field: getattr(target, field) + 1})
        assert other.fingerprint != target.fingerprint
    assert dataclasses.replace(target, features=(*target.features, "+x")).fingerprint != target.fingerprint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "opencl"}, "target kind is 'opencl'"),
        ({"kind": "llvm"}, "instruction set ''"),
        ({"kind": "llvm", "isa": "mmx"}, "instruction set 'mmx': unknown"),
        ({"kind": "llvm", "isa": "avx2", "threads": 0}, "threads is 0"),
        ({"kind": "llvm", "isa": "avx2", "wheels": 4}, "wheels"),
    ],
)
def test_impossible_targets_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Target.from_json(json.dumps(fields))


def test_a_device_s_own_multiprocessors_replace_the_usual_ones() -> None:
    usual, _, shared = CUDA_ARCHS["sm_90"]
    assert Target.cuda("sm_90a").threads == usual
    here = Target.cuda("sm_90", multiprocessors=7)
    assert (here.threads, here.shared_bytes, here.arch) == (7, shared, "sm_90")
    with pytest.raises(UsageError, match="'sm_12': not supported"):
        Target.cuda("sm_12")
