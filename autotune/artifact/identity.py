"""The identity that tells one artifact from another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import tvm_ffi

from autotune.artifact.plan import Plan

if TYPE_CHECKING:  # loads ONNX and the importer
    from autotune.importer.program import Program


def identity(program: Program, plan: Plan) -> str:
    """Hash of everything that decides what an artifact computes and how: graph, weights and plan.

    The plan alone is not enough: two models of the same kernels differ in their wiring or their weights.
    """
    digest = hashlib.sha256(plan.digest.encode())
    # The hash of ``main`` tells its kernels apart by the order in which they are called, in which ``kernels`` has them.
    digest.update(f"{tvm_ffi.structural_hash(program.main, map_free_vars=True):016x}".encode())
    digest.update(repr(tuple(program.kernels.values())).encode())
    digest.update(repr((program.inputs, program.outputs)).encode())
    if program.frame is not None:
        digest.update(repr(program.frame).encode())
    if program.caches:
        digest.update(repr(program.caches).encode())
    for array in program.weights:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
