"""Real graphs to change: pieces of networks, shrunk to small tensors, and the cases of ONNX's node suite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from tests.conformance.onnx_nodes.cases import Case, node_cases
from tests.fuzz.draft import Draft, names_read
from tests.fuzz.engine import Sample
from tests.fuzz.grower import NoFitError
from tests.models import cnn, recurrent, transformer
from tests.models.catalog import TINY
from tests.models.light import FOLDER, LIGHT

MOST_ELEMENTS = 40_000
"""Of one tensor of a piece; a graph is to take some tenths of a second."""

MOST_NODES = 14
PIECES, CASE_NODES = 60, 30
"""Cuts tried per seed; nodes of a case at most."""

UNEVEN = ("LSTM", "GRU", "RNN", "Reshape", "Attention")
"""Operators that name sizes in numbers of their own: beside them channels stay."""

BUILT = {
    **{name: make for name, make in TINY.items() if not name.startswith("tiny_open")},
    "mobilenet_v2": partial(cnn.mobilenet_v2, size=32),
    "mobilenet_v3": partial(cnn.mobilenet_v3, size=32),
    "efficientnet_b0": partial(cnn.efficientnet_b0, size=32),
    "resnet18": partial(cnn.resnet18, size=32),
    "encoder": partial(transformer.encoder, layers=1, width=64, heads=4, sequence=12),
    "siamese_cnn": partial(recurrent.siamese_cnn, size=32),
}
"""Name → function of a seed."""

RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def random_sample(rng: np.random.Generator) -> Sample:
    """A piece of a network or a case of the node suite."""
    if rng.random() < 0.35:
        case = _plain_cases()[int(rng.integers(len(_plain_cases())))]
        model = ModelProto()
        model.CopyFrom(case.model)
        return Sample(model, {name: np.asarray(value) for name, value in case.inputs.items()}, (case.name,))
    names = [*LIGHT, *BUILT]
    name = names[int(rng.integers(len(names)))]
    for _ in range(PIECES):
        try:
            return Sample(piece(network(name), rng), None, (name,))
        except NoFitError:
            continue
    raise NoFitError


@cache
def network(name: str) -> Draft:
    """A network with the types of its values; its large weights need not be filled."""
    model = onnx.load(FOLDER / f"{LIGHT[name]}.onnx") if name in LIGHT else BUILT[name](0)
    return Draft(model, np.random.default_rng(0))


@cache
def _plain_cases() -> tuple[Case, ...]:
    return tuple(case for case in node_cases() if _is_plain(case))


def _is_plain(case: Case) -> bool:
    """Whether all of a case's inputs and outputs are numbers, few of them, and the same in every run."""
    values = (*case.inputs.values(), *case.outputs)
    kinds = {node.op_type for node in case.model.graph.node}
    return (
        bool(case.inputs)
        and all(isinstance(value, np.ndarray) and value.dtype.kind in "fiub" for value in values)
        and all(value.size <= MOST_ELEMENTS for value in values)
        and len(case.model.graph.node) <= CASE_NODES
        and not kinds & RANDOM
        and all(each.domain in ("", "ai.onnx") for each in case.model.opset_import)
    )


def piece(source: Draft, rng: np.random.Generator) -> ModelProto:
    """Some connected nodes of a network with inputs for what they read, shrunk.

    Raises:
        NoFitError: if they do not stand alone.
    """
    chosen = _connected(source, rng, int(rng.integers(1, MOST_NODES + 1)))
    nodes = [NodeProto.FromString(source.graph.node[number].SerializeToString()) for number in sorted(chosen)]
    made = {name for node in nodes for name in node.output}
    fixed = _fixed(source)
    shrink = _Shrink(rng, not any(node.op_type in UNEVEN for node in nodes))
    for attribute in (each for node in nodes for each in node.attribute if each.name == "group"):
        attribute.i = shrink.size(attribute.i)
    graph = helper.make_graph(nodes, "piece", [], [])
    for name in dict.fromkeys(name for node in nodes for name in names_read(node) if name and name not in made):
        if name in fixed:
            graph.initializer.append(shrink.weight(name, fixed[name], _role(nodes, name)))
        elif source.dtype(name) == TensorProto.FLOAT and source.is_fixed(name):
            shape = shrink.image(source.shape(name))
            graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        else:
            raise NoFitError
    read = {name for node in nodes for name in names_read(node)}
    ends = [name for node in nodes for name in node.output if name and name not in read]
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in ends)
    if not graph.input:
        raise NoFitError
    model = helper.make_model(
        graph, opset_imports=source.model.opset_import, ir_version=max(4, source.model.ir_version)
    )
    draft = Draft(model, rng)
    for name in (*made, *draft.constants):
        if name and (not draft.is_fixed(name) or math.prod(draft.shape(name)) > MOST_ELEMENTS):
            raise NoFitError
    for value in graph.output:
        value.CopyFrom(onnx.ValueInfoProto(name=value.name, type=draft.types[value.name]))
    return model


def _fixed(source: Draft) -> Mapping[str, TensorProto | TypeProto]:
    """Weights: initialisers, Constants, and the large ones that light models fill with one number."""
    found: dict[str, TensorProto | TypeProto] = dict(source.constants)
    for node in source.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
        elif node.op_type == "ConstantOfShape" and node.input[0] in source.constants:
            found[node.output[0]] = source.types[node.output[0]]
    return found


def _connected(source: Draft, rng: np.random.Generator, count: int) -> set[int]:
    """Positions of at most ``count`` nodes that hang together through computed values."""
    nodes = source.graph.node
    whole = [number for number, node in enumerate(nodes) if node.op_type not in ("Constant", "ConstantOfShape")]
    made = {name: number for number in whole for name in nodes[number].output}
    readers: dict[str, list[int]] = {}
    for number in whole:
        for name in names_read(nodes[number]):
            readers.setdefault(name, []).append(number)
    chosen = {whole[int(rng.integers(len(whole)))]}
    edge = list(chosen)
    while edge and len(chosen) < count:
        number = edge.pop(int(rng.integers(len(edge))))
        ahead = [reader for name in nodes[number].output for reader in readers.get(name, ())]
        behind = [made[name] for name in names_read(nodes[number]) if name in made]
        for each in dict.fromkeys((*ahead, *behind)):
            if each not in chosen and len(chosen) < count:
                chosen.add(each)
                edge.append(each)
    return chosen


def _role(nodes: list[NodeProto], name: str) -> str:
    """``variance`` if a normalisation takes the weight's root, else ``plain``."""
    for node in nodes:
        positions = [position for position, each in enumerate(node.input) if each == name]
        if node.op_type == "BatchNormalization" and {1, 4} & set(positions):
            return "variance"
    return "plain"


class _Shrink:
    """Smaller sizes, the same for equal ones: channels divided by a power of two, images cut to a few pixels."""

    def __init__(self, rng: np.random.Generator, channels: bool) -> None:
        self._rng = rng
        self._by = int(rng.choice((1, 2, 4, 4, 8, 8))) if channels else 1
        self._side = int(rng.integers(5, 15))
        self._square = rng.random() < 0.3

    def size(self, size: int) -> int:
        """Of channels."""
        return size // self._by if size >= 4 * self._by and size % self._by == 0 else size

    def image(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of an input."""
        if len(shape) != 4:
            return tuple(
                self.size(size) if axis and axis == len(shape) - 1 else size for axis, size in enumerate(shape)
            )
        channels = self.size(shape[1])
        side = channels if self._square and 5 <= channels <= 24 else self._side
        return (shape[0], channels, *(min(size, side) for size in shape[2:]))

    def weight(self, name: str, weight: TensorProto | TypeProto, role: str) -> TensorProto:
        """Of a weight: cut where it has values, else random ones."""
        if isinstance(weight, TensorProto) and (weight.data_type != TensorProto.FLOAT):
            kept = TensorProto()
            kept.CopyFrom(weight)
            kept.name = name
            return kept
        dims = weight.dims if isinstance(weight, TensorProto) else [d.dim_value for d in weight.tensor_type.shape.dim]
        shape = tuple(map(self.size, dims))
        if math.prod(shape) > MOST_ELEMENTS:
            raise NoFitError
        if isinstance(weight, TensorProto) and shape == tuple(dims):
            values = numpy_helper.to_array(weight)
        else:
            values = self._random(shape)
        if role == "variance":
            values = np.abs(values) + 0.5
        return numpy_helper.from_array(np.asarray(values, np.float32), name)

    def _random(self, shape: tuple[int, ...]) -> NDArray[Any]:
        fan = math.prod(shape[1:]) if len(shape) > 1 else 1
        return self._rng.standard_normal(shape) / math.sqrt(max(1, fan))
