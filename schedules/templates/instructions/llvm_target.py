"""The processor that code is made for, as LLVM knows it."""

from __future__ import annotations

from functools import cache

import tvm
from tvm.target.codegen import llvm_get_cpu_features, llvm_get_system_triple

from schedules.processors import CODE_FEATURES, INSTRUCTION_SETS
from schedules.target import Target

LLVM_LEVEL = 2
"""LLVM's level of optimisation; TVM's default is 3. Of 36 convolutions of SqueezeNet and ResNet-50, first guesses were
0.98 to 1.38 times as fast as at level 3, random configs 0.96 to 1.05, all together 1.009 times; LLVM takes 0.8 of the
time. At level 1, 8 of the 36 took 1.6 to 2.6 times as long to run."""


def llvm_target(target: Target) -> tvm.target.Target:
    """The TVM object for a CPU."""
    options: dict[str, object] = {"kind": "llvm", "num-cores": target.threads, "opt-level": LLVM_LEVEL}
    level = INSTRUCTION_SETS[target.isa]
    if target.architecture not in ("", str(llvm_get_system_triple()).partition("-")[0]):
        options["mtriple"] = f"{target.architecture}-linux-gnu"
    if target.mcpu:
        options["mcpu"] = target.mcpu
    if features := (*(() if target.mcpu else level.features), *target.features):
        options["mattr"] = list(features)
    if level.abi:
        options["mabi"] = level.abi
    return tvm.target.Target(options)


@cache
def features_of(target: Target) -> frozenset[str]:
    """Return the processor's features by LLVM's tables, such as ``avx512vnni``; few where it has no name."""
    return cpu_features(llvm_target(target))


def code_flags(target: Target) -> tuple[str, ...]:
    """Features of a CPU that code for ``target`` may use, sorted, by the Linux kernel's names; none on CUDA."""
    if not target.isa:
        return ()
    return tuple(sorted({CODE_FEATURES[name] for name in features_of(target) if name in CODE_FEATURES}))


def cpu_features(target: tvm.target.Target) -> frozenset[str]:
    """The same for TVM's own object."""
    return frozenset(str(feature) for feature in llvm_get_cpu_features(target))
