"""Read an ONNX file that may be broken or hostile, and fix its input shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import NodeProto
from onnx.checker import ValidationError

from autotune.contributions import operator_advice
from autotune.frame.noise import live_sizes, noise_of
from autotune.importer.conversion.dead_branches import drop_dead_branches
from autotune.importer.conversion.flat_model import (
    OPSET_NOTE,
    agree_on_opsets,
    flatten,
    opset_of,
    without_functions,
)
from autotune.importer.conversion.foreign import is_expandable, set_strays_apart
from autotune.importer.conversion.noise_inputs import set_noise_apart
from autotune.importer.live.live_axes import Axes, OpenShapes, followed_axes
from autotune.importer.live.live_ranges import mask_positions
from autotune.importer.onnx_model.graph_walk import name_nodes, walk_nodes
from autotune.importer.onnx_model.inline_weights import parts_without_weights
from autotune.importer.onnx_model.input_shapes import bind_inputs, drop_notes
from autotune.importer.onnx_model.mend import drop_undeclared, mend
from autotune.importer.onnx_model.open_axes import OutputAxes, has_live_names, open_places
from autotune.importer.onnx_model.sequence_inputs import take_apart
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes, skeleton
from autotune.importer.onnx_model.tensors import fill_external, fill_sparse, load_tensors, place_of
from autotune.interface import Extent, Growth, axis_symbols
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import ModelError, UnsupportedError, first_line

MAX_NODES = 200_000
"""Nodes of a model once its functions are expanded: a bound on time and memory against hostile files. Heuristic, not
measured."""

ADVICE = "export the model again"

KEPT_MODELS = 16
"""Models whose open axes are kept: a model is loaded at many sizes while its artifact is verified."""


def load_model(
    path: str | Path,
    inputs: Mapping[str, Sequence[int]] | None = None,
    foreign: bool = False,
    apart: bool = False,
    mapped: bool = False,
) -> onnx.ModelProto:
    """The model at ``path``: checked, with external data read, every node named, every shape inferred that can be.

    Args:
        path: an ONNX file; external data is read from its folder only.
        inputs: input name → shape for inputs whose shape the file leaves open (``--input``); those of noise, whose
            shapes follow from others, may be among them.
        foreign: accept operators of other domains, which ONNX Runtime will run.
        apart: leave large external weights in their files (``tensors.array_of``).
        mapped: leave those inside the model's own file there too; for a short time only, as exporters write anew into
            the file that they wrote before, and what is mapped of it is then gone.

    Raises:
        ModelError: in one line, if the file is missing, damaged or not ONNX, or the model is invalid or unsupported.
        UsageError: if ``inputs`` does not fit the model.
    """
    path = Path(path)
    name = path.name
    model, inside = _parse(path, mapped)
    _check_text(model, name)
    _check_structure(model, name)
    fill_sparse(model, name)
    mend(model, name)
    load_tensors(model, path.parent, name, apart, inside)
    shapes = {own: shape for own, shape in (inputs or {}).items() if noise_of(own) is None}
    live = {} if has_live_names(model) else live_sizes(inputs or {})
    opened = _opened(model, shapes, live)
    bind_inputs(model, take_apart(model, shapes, name), path)
    _check_operators(model, name, foreign)
    drop_notes(model, OPSET_NOTE)
    if not agree_on_opsets(model):
        model = without_functions(model)
    name_nodes(model.graph.node)
    _check_onnx(model, name)
    infer_shapes(model, name)
    drop_dead_branches(model)
    set_noise_apart(model)
    if live:
        model = flatten(model)
        mask_positions(model, live, _followed(path, opened, tuple(live.items()), path.stat().st_mtime_ns))
    return model


def followed_sizes(path: Path, inputs: Mapping[str, Sequence[int]]) -> tuple[OutputAxes, dict[str, list[Growth]]]:
    """Return how the outputs' axes follow open sizes, of a model loaded with ``inputs``.

    And the ways in which any axis follows each of them. Both are empty if nothing in ``inputs`` says which positions of
    a call count.

    Raises:
        ModelError: as ``load_model``.
    """
    live = live_sizes(inputs)
    if not live:
        return {}, {}
    model = onnx.load(path, load_external_data=False)
    shapes = {own: shape for own, shape in inputs.items() if noise_of(own) is None}
    followed = _followed(path, _opened(model, shapes, live), tuple(live.items()), path.stat().st_mtime_ns)
    growths: dict[str, list[Growth]] = {}
    for part in {part for axes in followed.values() for axis in axes for part in axis if isinstance(part, Extent)}:
        growths.setdefault(part.symbol, []).append(part.growth)
    outputs = {
        (number, axis): parts
        for number, value in enumerate(model.graph.output)
        for axis, parts in enumerate(followed.get(value.name, ()))
        if axis_symbols(parts)
    }
    return outputs, growths


def _opened(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], live: Mapping[str, int]) -> OpenShapes:
    """``shapes`` with the symbols of ``live`` where ``model`` leaves its inputs open by these names."""
    names = open_places(model)
    return tuple(
        (
            own,
            tuple(name if (name := names.get((own, axis), "")) in live else int(s) for axis, s in enumerate(shape)),
        )
        for own, shape in shapes.items()
    )


@lru_cache(KEPT_MODELS)
def _followed(
    path: Path,
    shapes: OpenShapes,
    live: tuple[tuple[str, int], ...],
    changed_ns: int,  # noqa: ARG001  # for the cache
) -> dict[str, Axes]:
    """``followed_axes`` of the model at ``path``, a file that was changed then.

    Raises:
        ModelError: as ``followed_axes``.
    """

    def at(sizes: Mapping[str, int]) -> onnx.ModelProto:
        bound = {own: [sizes[s] if isinstance(s, str) else s for s in shape] for own, shape in shapes}
        return load_model(path, bound, apart=True)

    return followed_axes(at, shapes, dict(live))


def _parse(path: Path, mapped: bool) -> tuple[onnx.ModelProto, frozenset[tuple[str, int, int]]]:
    """The model, and the places of weights that it says are external and that lie in its file.

    Weights are never in memory twice: where they do not stay in the file, each is read into the parsed model.
    """
    advice = "give the path of an ONNX file"
    if not path.exists():
        with suppress(OSError):
            advice = did_you_mean(path.name, sorted(file.name for file in path.parent.glob("*.onnx"))) + advice
        raise ModelError(f"{path} does not exist; {advice}")
    if not path.is_file():
        raise ModelError(f"{path} is not a file; {advice}")
    places: Iterable[tuple[int, int]] = ()
    try:
        parts = parts_without_weights(path)
        data, places = parts or (path.read_bytes(), ())
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            f"{path} is not an ONNX model, or it is damaged or cut short ({size} bytes); copy or export it again"
        ) from error
    # Protobuf parses many files that are not models, the empty file among them.
    if not model.ir_version or not model.graph.output or not (model.graph.node or _passes_on(model.graph)):
        raise ModelError(f"{path} holds no ONNX graph ({size} bytes); copy or export it again")
    inside = frozenset((str(path), *place) for place in places)
    if mapped or not inside:
        return model, inside
    _read_inside(model, path, inside)
    return model, frozenset()


def _passes_on(graph: onnx.GraphProto) -> bool:
    """Return whether the outputs of a graph without nodes are inputs and initialisers of it."""
    known = {value.name for value in (*graph.input, *graph.initializer)}
    return all(value.name in known for value in graph.output)


def _read_inside(model: onnx.ModelProto, path: Path, inside: frozenset[tuple[str, int, int]]) -> None:
    """Read weights that lie in the model's own file into ``model``, in place.

    By reads: where an exporter writes the file anew meanwhile, a mapped page that is gone ends the process.

    Raises:
        ModelError: if the file cannot be read, or is shorter than it was.
    """
    try:
        with path.open("rb") as file:
            for tensor in model.graph.initializer:
                place = place_of(tensor)
                if place is None or place not in inside:
                    continue
                file.seek(place[1])
                data = file.read(place[2])
                if len(data) < place[2]:
                    raise ModelError(f"{path} was cut short while it was read; import it when it is complete")
                fill_external(tensor, data)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def _check_text(message: Any, name: str) -> None:
    """Refuse names that are not valid UTF-8, which protobuf returns as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        for item in (value,) if isinstance(value, (str, bytes)) or hasattr(value, "ListFields") else value:
            if isinstance(item, bytes):
                raise ModelError(f"{name} is damaged: {item[:40]!r} is no text; copy or export it again")
            if field.type == field.TYPE_MESSAGE:
                _check_text(item, name)


def _check_structure(model: onnx.ModelProto, name: str) -> None:
    """Refuse what would make later steps recurse or grow without bound."""
    bodies = {(f.domain, f.name): list(walk_nodes(f.node)) for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def expanded(nodes: Iterable[NodeProto], calls: tuple[tuple[str, str], ...]) -> int:
        """Nodes after all functions are expanded; ``calls`` is the chain of functions that led here."""
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key not in bodies:
                total += 1
                continue
            if key in calls or len(calls) > 64:
                raise ModelError(f"{name}: function {node.op_type!r} calls itself, or calls nest too deep; {ADVICE}")
            if key not in sizes:
                sizes[key] = expanded(bodies[key], (*calls, key))
            total += sizes[key]
        return total

    count = expanded(walk_nodes(model.graph.node), ())
    if count > MAX_NODES:
        raise ModelError(f"{name} has {count} nodes once its functions are expanded, more than {MAX_NODES}; split it")


def _check_operators(model: onnx.ModelProto, name: str, foreign: bool) -> None:
    """Every operator must be one of ONNX's own at the model's opset, one of ONNX Runtime's that ``expand_foreign``
    replaces, or a function of the model.

    Operators of ONNX's other domains pass if they are defined by a function body, which ``simplify`` expands.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    bodies = [(model.opset_import, model.graph.node), *((own.opset_import, own.node) for own in model.functions)]
    for opsets, nodes in bodies:
        versions = {"" if opset.domain in STANDARD_DOMAINS else opset.domain: opset.version for opset in opsets}
        version = versions.setdefault("", 1)
        newest = onnx.defs.onnx_opset_version()
        if version > newest:
            raise ModelError(
                f"{name} uses ONNX opset {version} and the installed onnx package knows up to {newest}; "
                "upgrade onnx or export the model for an older opset"
            )
        for node in walk_nodes(nodes):
            if (node.domain, node.op_type) in functions or (foreign and node.domain not in STANDARD_DOMAINS):
                continue
            if not is_expandable(node, version):
                _check_operator(node, versions, name)


def _check_operator(node: NodeProto, versions: Mapping[str, int], name: str) -> None:
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    advice = operator_advice(domain, node.op_type, "export the model with standard operators only")
    schema: Any  # onnx's own stub leaves out the two fields that are read
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    except onnx.defs.SchemaError as error:
        if not domain:
            raise ModelError(
                f"{name}: operator {node.op_type!r} ({_node_name(node)}) does not exist in ONNX opset {versions['']}; "
                f"{advice}"
            ) from error
        schema = None
    if domain and not (schema and (schema.has_function or schema.has_context_dependent_function)):
        raise UnsupportedError(
            f"{name}: operator {domain}::{node.op_type} ({_node_name(node)}) is not a standard ONNX operator; {advice}"
        )


def _node_name(node: NodeProto) -> str:
    return (
        f"node {node.name!r}" if node.name else f"the node that makes {', '.join(map(repr, node.output)) or 'nothing'}"
    )


def _check_onnx(model: onnx.ModelProto, name: str) -> None:
    small = skeleton(model, tables=False)
    set_strays_apart(small, opset_of(small))
    for function in small.functions:
        set_strays_apart(function, opset_of(function))
    drop_undeclared(small.graph)
    try:
        onnx.checker.check_model(small)
    except ValidationError as error:
        raise ModelError(f"{name} is not a valid ONNX model: {first_line(error)}; {ADVICE}") from error
