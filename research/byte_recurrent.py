"""LSTMs that ONNX Runtime quantised (``DynamicQuantizeLSTM``), timed in turn with ONNX Runtime.

    python -m research.byte_recurrent build/byte_recurrent --units 64,128,256,512 --steps 20,100

Every model is one layer, tuned without a trial. The table has the milliseconds of both engines, their ratio (above 1 if
ours is faster) with its quartiles, and the bytes of R: what every step reads.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

import autotune
from autotune.validation.bench import bench
from tests.autotune_tests.importer_tests.onnx_cases import recurrent

TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}


def quantised(folder: Path, units: int, steps: int, batch: int, direction: str, kind: str) -> Path:
    """The file of a layer of ``units`` that reads as many numbers in every step, quantised."""
    name = f"{direction}-{kind}-{units}-{steps}-{batch}"
    plain, path = folder / f"{name}.plain.onnx", folder / f"{name}.onnx"
    model, _ = recurrent("LSTM", direction, units, batch, steps, units)
    onnx.save(model, plain)
    quantize_dynamic(plain, path, op_types_to_quantize=["LSTM"], weight_type=TYPES[kind])
    plain.unlink()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, value in (("units", "64,128,256,512"), ("steps", "20,100"), ("batch", "1")):
        parser.add_argument(f"--{name}", default=value)
    parser.add_argument("--direction", default="forward")
    parser.add_argument("--weights", choices=list(TYPES), default="int8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes = [[int(number) for number in text.split(",")] for text in (options.units, options.steps, options.batch)]
    print("units steps batch  ours ms  ONNX Runtime ms  ratio (quartiles)  bytes of R")
    for units, steps, batch in itertools.product(*sizes):
        path = quantised(options.folder, units, steps, batch, options.direction, options.weights)
        out = path.with_suffix(".tuned")
        autotune.tune(path, autotune.Options(effort="instant", out=out, threads=options.threads))
        result = bench(out, ("onnxruntime",), path, options.rounds)
        ours, theirs = (engine.to_data()["p50_ms"] for engine in result.engines)
        low, high = result.quartiles("onnxruntime")
        ratio = f"{result.speedup('onnxruntime'):.2f} ({low:.2f} to {high:.2f})"
        print(f"{units:5} {steps:5} {batch:5} {ours:8.4f} {theirs:16.4f}  {ratio:>17}  {4 * units * units}", flush=True)


if __name__ == "__main__":
    main()
