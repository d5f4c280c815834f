"""Fix the shapes of a model's inputs: as ``--input`` gives them, with a guess where it does not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorShapeProto, ValueInfoProto

from autotune.importer.onnx_model.shapes import dim_name, is_fixed, is_known, shape_text, true_inputs
from costmodels.choices import did_you_mean
from schedules.errors import ModelError, UsageError

GUESSES = (
    ("batch", 1),
    ("height|width|image|pixel", 224),
    ("seq|len|time|frame|token|step", 128),
)
"""(what an open size's name holds, the size to suggest for it). Heuristic, not measured: the sizes that most published
models are timed with. They appear in a message only, never in an import."""

IMAGE = (1, 3, 224, 224)
"""Sizes to suggest for the open axes of an input of four axes, or of unknown rank. Heuristic, not measured."""

LENGTH = 128
"""Size to suggest for any other open axis but the first, which counts as a batch. Heuristic, not measured."""


COUNTED = "height|width|image|pixel|seq|len|time|frame|token|step|num|count|point|node|edge|vert|box|atom|row|channel"
"""What the name of a first size holds that is no batch. Heuristic: names of exporters' axes."""

BATCH_NOTE = "tune.batch"
"""Key of the model's metadata under which a batch that is assumed is noted, for people."""


def parse_input(text: str) -> tuple[str, tuple[int, ...]]:
    """``name:1x3x224x224`` → name and shape; the name may hold colons and spaces, and ``name:`` is a scalar.

    ``name:0`` is a sequence without elements, or an optional value that is not there.

    Raises:
        UsageError: if the text has another form.
    """
    name, colon, dims = text.rpartition(":")
    parts = dims.split("x") if dims else []
    empty = parts == ["0"]  # of a sequence or an optional value
    if not colon or not name or not (empty or all(part.isdecimal() and int(part) > 0 for part in parts)):
        raise UsageError(
            f"--input {shlex.quote(text)} is not NAME:DIMS; write for example --input data:1x3x224x224, "
            "and quote a name with spaces: --input 'my data:1x128'"
        )
    return name, tuple(int(part) for part in parts)


def input_flag(name: str, shape: Sequence[int]) -> str:
    """The ``--input`` option for one shape, as a shell takes it."""
    return f"--input {shlex.quote(f'{name}:' + 'x'.join(map(str, shape)))}"


def bind_inputs(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]], path: Path) -> None:
    """Fix the shape of every graph input, in place. A symbol that one input fixes is fixed wherever it is used.

    Args:
        model: its inputs may have symbolic, unknown or missing shapes.
        inputs: input name → shape, from ``--input``.
        path: the model's, for messages.

    An open batch is the one that another input's shape gives, else 1, which is noted for people (``BATCH_NOTE``).

    Raises:
        UsageError: if ``inputs`` names no input or does not fit a rank, a fixed dimension or a shared symbol.
        ModelError: if an input is not a tensor, or still has no fixed shape; the message has the command to give.
    """
    name = path.name
    for index in reversed(range(len(model.metadata_props))):
        if model.metadata_props[index].key == BATCH_NOTE:
            del model.metadata_props[index]
    values = true_inputs(model.graph)
    unknown = [given for given in inputs if given not in {value.name for value in values}]
    if unknown:
        names = [value.name for value in values]
        raise UsageError(
            f"--input {unknown[0]}:… names no input of {name}; {did_you_mean(unknown[0], names)}"
            f"its inputs are: {', '.join(names) or 'none'}"
        )
    symbols: dict[str, int] = {}
    batches = _open_batches(values)
    for value in values:
        if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.elem_type:
            readers = dict.fromkeys(node.op_type for node in model.graph.node if value.name in node.input)
            by = f" (read by {', '.join(readers)})" if readers else ""
            raise ModelError(f"{name}: input {value.name!r}{by} is not a tensor; only tensors are supported")
        if value.name in inputs:
            _bind_given(value, tuple(inputs[value.name]), symbols, name)
    for value in values:
        _bind_symbols(value.type.tensor_type.shape, symbols)
    _bind_batches(model, [value for value in values if value.name in batches], inputs, symbols, name)
    _require_fixed(values, inputs, symbols, path)
    for value in model.graph.output:
        _bind_symbols(value.type.tensor_type.shape, symbols)


def _bind_given(value: ValueInfoProto, given: tuple[int, ...], symbols: dict[str, int], name: str) -> None:
    """Set one input's shape to ``given`` and note which symbols that fixes."""
    tensor = value.type.tensor_type
    flag = input_flag(value.name, given)
    if any(size < 1 for size in given):
        raise UsageError(f"{flag} has a dimension below 1; every dimension must be at least 1")
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(TensorShapeProto())
        tensor.shape.dim.extend(TensorShapeProto.Dimension(dim_value=size) for size in given)
        return
    described = f"input {value.name!r} of {name} is {shape_text(tensor.shape)}"
    if len(given) != len(tensor.shape.dim):
        raise UsageError(f"{flag} has {len(given)} dimensions but {described}; give {len(tensor.shape.dim)}")
    for dim, size in zip(tensor.shape.dim, given, strict=True):
        if is_known(dim) and dim.dim_value != size:
            raise UsageError(f"{flag} does not fit: {described}; its fixed dimensions cannot change")
        symbol = dim_name(dim)
        if symbol and symbols.setdefault(symbol, size) != size:
            raise UsageError(
                f"{flag} does not fit: {described} and {symbol!r} is {symbols[symbol]} already; "
                "give the same size wherever the name occurs"
            )
        dim.dim_value = size


def _bind_symbols(shape: TensorShapeProto, symbols: Mapping[str, int]) -> None:
    for dim in shape.dim:
        if dim_name(dim) in symbols:
            dim.dim_value = symbols[dim_name(dim)]


def _open_batches(values: Sequence[ValueInfoProto]) -> set[str]:
    """The inputs whose first size is an open batch.

    It is one unless its name says what else it counts, or is that of another axis too.
    """
    elsewhere = {dim_name(dim) for value in values for dim in value.type.tensor_type.shape.dim[1:]} - {""}
    found = set()
    for value in values:
        dims = value.type.tensor_type.shape.dim
        symbol = "" if not dims else dim_name(dims[0])
        if dims and not is_known(dims[0]) and symbol not in elsewhere and not re.search(COUNTED, symbol.lower()):
            found.add(value.name)
    return found


def _bind_batches(
    model: onnx.ModelProto,
    values: Sequence[ValueInfoProto],
    inputs: Mapping[str, Sequence[int]],
    symbols: dict[str, int],
    name: str,
) -> None:
    """Give open batches, the first sizes of ``values``, their size, in place, and note where that is assumed.

    Nothing is done where other sizes are open too: the refusal then shows all of them.
    """
    given = {int(inputs[value.name][0]) for value in values if value.name in inputs}
    size = min(given) if len(given) == 1 else 1
    left = [value for value in values if not is_known(value.type.tensor_type.shape.dim[0])]
    rest = [value.type.tensor_type for value in true_inputs(model.graph)]
    open_sizes = sum(not is_known(dim) for tensor in rest for dim in tensor.shape.dim)
    if not left or open_sizes > len(left) or not all(tensor.HasField("shape") for tensor in rest):
        return
    described = ", ".join(f"{value.name!r} is {shape_text(value.type.tensor_type.shape)}" for value in left)
    for value in left:
        dim = value.type.tensor_type.shape.dim[0]
        if dim_name(dim):
            symbols[dim_name(dim)] = size
        dim.dim_value = size
    if len(given) != 1:
        shape = [dim.dim_value for dim in left[0].type.tensor_type.shape.dim]
        text = f"{name}: the open batch is taken as 1 ({described}); for another size say, for example,"
        model.metadata_props.add(key=BATCH_NOTE, value=f"{text} {input_flag(left[0].name, [8, *shape[1:]])}")


def _require_fixed(
    values: Sequence[ValueInfoProto], inputs: Mapping[str, Sequence[int]], symbols: Mapping[str, int], path: Path
) -> None:
    open_values = [value for value in values if not is_fixed(value.type.tensor_type)]
    if not open_values:
        return
    told = ", ".join(f"input {value.name!r} has {_described(value)}" for value in open_values)
    sizes = dict(symbols)
    shapes = {**inputs, **{value.name: guessed_shape(value, sizes) for value in open_values}}
    flags = " ".join(input_flag(name, shape) for name, shape in shapes.items())
    raise ModelError(
        f"{path.name}: {told}; fix them with --input. Try: tune run {shlex.quote(str(path))} {flags} (guessed sizes)"
    )


def _described(value: ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    return f"dynamic dimensions ({shape_text(tensor.shape)})" if tensor.HasField("shape") else "an unknown shape"


def guessed_shape(value: ValueInfoProto, sizes: dict[str, int]) -> tuple[int, ...]:
    """A likely shape of an input: what is fixed as it is, open sizes by their name, else by their place.

    Four axes count as an image with its channels behind the batch, or last where that axis alone has at most four.

    Args:
        sizes: symbol → size; symbols that are guessed are added. A name such as ``past + length`` is the sum of what
            it names.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return IMAGE
    dims = list(tensor.shape.dim)
    places = IMAGE if len(dims) == len(IMAGE) else (1, *[LENGTH] * len(dims))
    if len(dims) == len(IMAGE) and is_known(dims[3]) and dims[3].dim_value <= 4:
        places = (1, 224, 224, 3)
    return tuple(
        dim.dim_value if is_known(dim) else _guessed_size(dim_name(dim), place, sizes)
        for dim, place in zip(dims, places, strict=False)
    )


def _guessed_size(symbol: str, place: int, sizes: dict[str, int]) -> int:
    if not symbol:
        return place
    if symbol not in sizes:
        terms = [term.strip() for term in symbol.split("+")]
        by_name = next((size for words, size in GUESSES if re.search(words, symbol.lower())), place)
        if len(terms) > 1 and all(terms):
            by_name = sum(int(term) if term.isdecimal() else _guessed_size(term, place, sizes) for term in terms)
        sizes[symbol] = by_name
    return sizes[symbol]
