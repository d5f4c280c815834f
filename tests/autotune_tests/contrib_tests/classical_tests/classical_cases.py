"""Cases of ``ai.onnx.ml`` operators, and forests of random trees in both of ONNX's forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.autotune_tests.importer_tests.contrib_cases import Case, floats

CLASSICAL = "ai.onnx.ml"
X = floats(5, 4)


def classical(
    kind: str, *inputs: np.ndarray, outputs: tuple[int, ...] = (1,), version: int = 3, **attributes: Any
) -> Case:
    label = "-".join(str(value) for value in attributes.values() if isinstance(value, str))
    return Case(kind, inputs, (), attributes, outputs, domain=CLASSICAL, version=version, label=label)


def classifier(kind: str, *inputs: np.ndarray, **attributes: Any) -> Case:
    return classical(kind, *inputs, outputs=(TensorProto.INT64, TensorProto.FLOAT), **attributes)


def grown(
    trees: int, depth: int, features: int, modes: tuple[str, ...] = ("BRANCH_LEQ",)
) -> list[list[dict[str, Any]]]:
    """Random trees as lists of nodes; leaves have no feature."""
    rng = np.random.default_rng(trees + depth)
    forest = []
    for _ in range(trees):
        nodes: list[dict[str, Any]] = []

        def grow(level: int, nodes: list[dict[str, Any]] = nodes) -> int:
            number = len(nodes)
            nodes.append({})
            if level == depth or (level and rng.random() < 0.2):
                nodes[number] = {"mode": "LEAF"}
            else:
                mode, value = str(rng.choice(modes)), float(np.float32(rng.standard_normal()))
                nodes[number] = {"mode": mode, "feature": int(rng.integers(features)), "value": value}
                nodes[number] |= {"nan": int(rng.integers(2)), "true": grow(level + 1), "false": grow(level + 1)}
            return number

        grow(0)
        forest.append(nodes)
    return forest


def tree_attributes(forest: list[list[dict[str, Any]]], what: str, ids: tuple[int, ...], sign: float) -> dict[str, Any]:
    """Attributes of a TreeEnsembleRegressor (``what`` = target) or -Classifier (class)."""
    rng = np.random.default_rng(0)
    nodes = [(tree, number, node) for tree, members in enumerate(forest) for number, node in enumerate(members)]
    leaves = [(tree, number, i) for tree, number, node in nodes if node["mode"] == "LEAF" for i in ids]
    weights = rng.random(len(leaves)) + min(sign, 0) / 2
    columns = {"featureids": "feature", "truenodeids": "true", "falsenodeids": "false"}
    attributes: dict[str, Any] = {
        f"nodes_{name}": [node.get(key, 0) for *_, node in nodes] for name, key in columns.items()
    }
    return attributes | {
        "nodes_treeids": [tree for tree, *_ in nodes],
        "nodes_nodeids": [number for _, number, _ in nodes],
        "nodes_modes": [node["mode"] for *_, node in nodes],
        "nodes_values": [node.get("value", 0.0) for *_, node in nodes],
        "nodes_missing_value_tracks_true": [node.get("nan", 0) for *_, node in nodes],
        f"{what}_treeids": [tree for tree, *_ in leaves],
        f"{what}_nodeids": [number for _, number, _ in leaves],
        f"{what}_ids": [i for *_, i in leaves],
        f"{what}_weights": [float(weight) for weight in weights / len(forest)],
    }


def tensor(values: Any, dtype: Any) -> Any:
    return numpy_helper.from_array(np.array(values, dtype))
