"""The nine light topologies of the ONNX package, with random weights instead of their constants.

Their constants make every wrong kernel pass: all outputs are equal. The topologies are real.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.models.weights import refill

LIGHT = {
    "alexnet": "light_bvlc_alexnet",
    "densenet121": "light_densenet121",
    "inception_v1": "light_inception_v1",
    "inception_v2": "light_inception_v2",
    "resnet50": "light_resnet50",
    "shufflenet": "light_shufflenet",
    "squeezenet": "light_squeezenet",
    "vgg19": "light_vgg19",
    "zfnet512": "light_zfnet512",
}
"""Our name → file stem in the ONNX package."""

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light(name: str, seed: int = 0) -> onnx.ModelProto:
    """One of ``LIGHT`` (batch 1, 3×224×224, opset 9), with weights from ``seed``."""
    return refill(onnx.load(FOLDER / f"{LIGHT[name]}.onnx"), seed)
