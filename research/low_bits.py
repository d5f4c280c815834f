"""A chain of products by packed weights, for `tune run` and `tune bench`: as many bytes as a small decoder has.

    python -m research.low_bits chain.onnx --rows 1 --bits 4 --group 32 --accuracy-level 4 --layers 32
    tune run chain.onnx --out chain.tuned && tune bench chain.tuned --against onnxruntime,openvino --rounds 20

Every layer is a pair 896 → 4864 → 896, as the feed-forward part of a decoder of half a billion parameters has it. The
command prints the bytes of weights that a run reads, which bound it by the memory's bandwidth (`tune devices`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WIDTHS = 896, 4864


def balanced(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Bytes of levels around the middle: a mean that is not 0 would grow from layer to layer."""
    low, high = (rng.integers(1, 1 << bits, shape, np.uint8) for _ in range(2))
    return low | high << 4 if bits == 4 else low


def chain(rows: int, bits: int, group: int, level: int, layers: int, zeros: bool = False) -> onnx.ModelProto:
    """MatMulNBits after MatMulNBits, each with random weights that keep the numbers' size."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for number in range(2 * layers):
        depth, columns = WIDTHS if number % 2 == 0 else WIDTHS[::-1]
        groups = depth // group
        scale = np.float32(1 / (0.29 * 2**bits * np.sqrt(depth)))
        arrays = {
            "w": balanced(rng, bits, (columns, groups, group * bits // 8)),
            "s": np.full(columns * groups, scale, np.float32) * rng.uniform(0.9, 1.1, columns * groups).astype("f4"),
        }
        if zeros:
            arrays["z"] = rng.integers(0, 256, columns * -(-groups * bits // 8), np.uint8)
        weights += [numpy_helper.from_array(array, f"{name}{number}") for name, array in arrays.items()]
        names = [x, *(f"{name}{number}" for name in arrays)]
        numbers = {"K": depth, "N": columns, "bits": bits, "block_size": group, "accuracy_level": level}
        x = f"x{number}"
        nodes.append(helper.make_node("MatMulNBits", names, [x], x, domain="com.microsoft", **numbers))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, WIDTHS[0]]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    for name, value in (("rows", 1), ("bits", 4), ("group", 32), ("accuracy-level", 4), ("layers", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--zeros", action="store_true")
    asked = parser.parse_args()
    model = chain(asked.rows, asked.bits, asked.group, asked.accuracy_level, asked.layers, asked.zeros)
    onnx.save(model, asked.path)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    print(
        f"{asked.path}: {size / 1e6:.1f} MB of weights, {2 * asked.rows * asked.layers * 2 * 896 * 4864 / 1e9:.2f} Gop"
    )


if __name__ == "__main__":
    main()
