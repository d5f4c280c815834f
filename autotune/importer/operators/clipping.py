"""Clip as two elementwise operators, which fuse into what makes their input and keep its layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.conversion.frontend import Inputs, converts


@converts("Clip")
def clip(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """``min(max(x, low), high)``; a bound of NaN or one that is left out does not bind (as in ONNX Runtime)."""
    result = inputs[0]
    bounds = inputs[1:3] if opset >= 11 else [_attribute(attrs, "min", result), _attribute(attrs, "max", result)]
    for bound, limited in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is None:
            continue
        if isinstance(bound, GenericConst):
            if bool(np.isnan(bound.value.numpy()).any()):
                continue
        elif np.dtype(str(bound.ty.dtype)).kind == "f":
            free = -np.inf if limited is relax.op.maximum else np.inf
            bound = bb.normalize(relax.op.where(relax.op.isnan(bound), relax.const(free, str(bound.ty.dtype)), bound))
        result = bb.normalize(limited(result, bound))
    return result


def _attribute(attrs: dict[str, Any], name: str, like: relax.Expr | None) -> relax.Expr | None:
    """The bound of operator sets before 11."""
    assert like is not None
    return relax.const(float(attrs[name]), str(like.ty.dtype)) if name in attrs else None
