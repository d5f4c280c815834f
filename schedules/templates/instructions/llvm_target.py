"""The processor that code is made for, as LLVM knows it."""

from __future__ import annotations

from functools import cache

import tvm
from tvm.target.codegen import llvm_get_cpu_features, llvm_get_system_triple

from schedules.target import Target


def llvm_target(target: Target) -> tvm.target.Target:
    """The TVM object for a CPU."""
    options: dict[str, object] = {"kind": "llvm", "num-cores": target.threads}
    if target.architecture not in ("", str(llvm_get_system_triple()).partition("-")[0]):
        options["mtriple"] = f"{target.architecture}-linux-gnu"
    if target.mcpu:
        options["mcpu"] = target.mcpu
    if target.features:
        options["mattr"] = list(target.features)
    return tvm.target.Target(options)


@cache
def features_of(target: Target) -> frozenset[str]:
    """What the target's processor has by LLVM's tables and names, such as ``avx512vnni``; few where it has no name."""
    return frozenset(str(feature) for feature in llvm_get_cpu_features(llvm_target(target)))
