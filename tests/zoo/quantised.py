"""``python -m tests.zoo.quantised EXPORTS FOLDER``: exports as ONNX Runtime's quantisers and optimiser leave them.

Reads files that ``tests.zoo.exports`` wrote, and runs where the extra ``zoo`` is installed. What a tool cannot convert
is said and left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from autotune.importer.kernel_passes import inputs_of
from autotune.validation.verify import random_inputs

SAMPLES = 4
"""Random inputs that a static quantiser takes its ranges from."""

Convert = Callable[[Path, Path], None]


class Samples:
    """What ONNX Runtime's static quantisers read inputs from: an iterator that ends with None."""

    def __init__(self, model: Path) -> None:
        specs = inputs_of(onnx.load(model, load_external_data=False))
        self._feeds: Iterator[dict[str, Any]] = iter([random_inputs(specs, seed) for seed in range(SAMPLES)])

    def get_next(self) -> dict[str, Any] | None:
        """The next input."""
        return next(self._feeds, None)


def _static(form: str, activations: str, weights: str, per_channel: bool) -> Convert:
    def convert(source: Path, target: Path) -> None:
        from onnxruntime import quantization  # optional: an extra

        prepared = target.with_suffix(".prepared")
        quantization.quant_pre_process(str(source), str(prepared))
        quantization.quantize_static(
            str(prepared),
            str(target),
            Samples(source),
            quant_format=quantization.QuantFormat[form],
            per_channel=per_channel,
            activation_type=quantization.QuantType[activations],
            weight_type=quantization.QuantType[weights],
        )
        prepared.unlink()

    return convert


def _dynamic(source: Path, target: Path) -> None:
    from onnxruntime import quantization  # optional: an extra

    quantization.quantize_dynamic(str(source), str(target))


def _half(source: Path, target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16  # optional: an extra

    onnx.save(convert_float_to_float16(onnx.load(source)), target)


def _four_bits(source: Path, target: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # optional: an extra

    quantiser = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True, accuracy_level=4)
    quantiser.process()
    packed: ModelProto = quantiser.model.model
    onnx.save(packed, target)


def _optimised(source: Path, target: Path) -> None:
    import onnxruntime  # optional: an extra

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(target), 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(target, load_external_data=False)  # it names the data of the source, as if that lay beside it
    onnx.load_external_data_for_model(model, str(source.parent))
    onnx.save(model, target)


CONVERTERS: dict[str, Convert] = {
    "qdq": _static("QDQ", "QUInt8", "QInt8", True),
    "qdq-s8": _static("QDQ", "QInt8", "QInt8", False),
    "qdq-u16": _static("QDQ", "QUInt16", "QInt8", False),
    "qoperator": _static("QOperator", "QUInt8", "QUInt8", False),
    "dynamic": _dynamic,
    "fp16": _half,
    "nbits": _four_bits,
    "optimised": _optimised,
}
"""What is appended to a name → what converts the model."""

WANTED: dict[str, tuple[str, ...]] = {
    "torchvision.resnet18.ts": ("qdq", "qdq-s8", "fp16", "optimised"),
    "torchvision.mobilenet_v2.ts": ("qdq", "qoperator", "fp16"),
    "torchvision.squeezenet1_1.ts": ("qdq-u16", "qoperator"),
    "torchvision.shufflenet_v2_x0_5.ts": ("qdq", "optimised"),
    "torchvision.mobilenet_v3_small.dyn": ("qdq",),
    "timm.vit_tiny_patch16_224.ts": ("qdq", "dynamic", "optimised"),
    "transformers.Bert.ts": ("qdq", "dynamic", "fp16", "optimised"),
    "transformers.DistilBert.dyn": ("dynamic", "nbits"),
    "transformers.GPT2.ts": ("dynamic", "fp16", "nbits", "optimised"),
    "transformers.Llama.dyn": ("dynamic", "nbits", "optimised"),
    "torch.lstm.ts": ("dynamic", "fp16"),
}
"""Export → what is made of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    np.random.seed(0)
    for name, kinds in WANTED.items():
        source = options.exports / f"{name}.onnx"
        for kind in kinds:
            target = options.folder / f"{name}.{kind}.onnx"
            if target.exists() or not source.exists():
                continue
            try:
                CONVERTERS[kind](source, target)
            except Exception as error:  # a converter may fail in any way; the other models are still wanted
                target.unlink(missing_ok=True)
                print(f"{target.stem} is not made: {type(error).__name__}: {str(error).strip().splitlines()[:1]}")
            else:
                print(target.stem)


if __name__ == "__main__":
    main()
