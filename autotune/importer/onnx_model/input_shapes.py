"""Fix the shapes of a model's inputs: as ``--input`` gives them, as guessed where there is none.

Open axes have likely sizes by their kind: batch, image, signal, length of a sequence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, TensorShapeProto, ValueInfoProto

from autotune.importer.onnx_model.graph_edits import keep_only
from autotune.importer.onnx_model.shapes import dim_name, is_fixed, is_known, shape_text, true_inputs
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import ModelError, UsageError

BATCH = 1
"""Guess for an open batch."""

IMAGE = (BATCH, 3, 224, 224)
"""Guess for the open axes of an input of four axes, or of unknown rank. Heuristic, not measured."""

LENGTHS = (16, 32, 64, 128)
"""Guesses for an open length, shortest first; the last one where a single size is wanted. Heuristic, not measured:
published sequence models are timed at the last, and each size between them is padded to less than twice its length."""

SAMPLES = 16_000
"""Guess for the open length of a sampled signal: one second at 16 kHz, at which most speech models are trained."""

BATCHES, IMAGES, SEQUENCES = "batch", "height|width|image|pixel", "seq|len|time|frame|token|step"
"""Words in the name of an open size, by the kind of axis. Heuristic: names of exporters' axes."""

COUNTED = f"{IMAGES}|{SEQUENCES}|num|count|point|node|edge|vert|box|atom|row|channel"
"""Words in the name of a first size that is no batch. Heuristic: names of exporters' axes."""

STATES = "state|hidden|memory|cell|^[hc]_?([0nx]|in)?$"
"""Words in the name of an input that is a recurrent layer's state: (layers, batch, units). Heuristic: as above."""

SIGNALS = "audio|wave|speech|signal|sound|pcm|sample|input_values"
"""Words in the name of an input of floats, or of its last size, if that counts samples. Heuristic: as above."""

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def guessed_shape(value: ValueInfoProto, sizes: dict[str, int], length: int = LENGTHS[-1]) -> tuple[int, ...]:
    """Return a likely shape of an input: known sizes as they are, open ones by their name, else by their axis.

    Four axes count as an image with its channels behind the batch, or last where that axis alone has at most four.

    Args:
        sizes: symbol → size; symbols that are guessed are added. A name such as ``past + length`` is the sum of what
            it names.
        length: the guess for lengths.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return IMAGE
    dims = list(tensor.shape.dim)
    guesses: Sequence[int] = IMAGE if len(dims) == len(IMAGE) else (BATCH, *[length] * len(dims))
    if len(dims) == len(IMAGE) and is_known(dims[3]) and dims[3].dim_value <= 4:
        guesses = (BATCH, IMAGE[2], IMAGE[3], 3)
    if len(dims) == 3 and is_known(dims[0]) and is_known(dims[2]) and re.search(STATES, value.name.lower()):
        guesses = (BATCH, BATCH, BATCH)  # only the batch of a state is open
    names = [dim_name(dim) for dim in dims]
    if names and _is_signal(value, names):
        if names[-1]:
            sizes.setdefault(names[-1], SAMPLES)
        guesses = (*guesses[: len(dims) - 1], SAMPLES)
    return tuple(
        dim.dim_value if is_known(dim) else _guessed_size(name, guess, sizes, length)
        for dim, name, guess in zip(dims, names, guesses, strict=False)
    )


def guessed_shapes(
    values: Sequence[ValueInfoProto], sizes: dict[str, int], length: int = LENGTHS[-1]
) -> dict[str, tuple[int, ...]]:
    """Return a likely shape of each input; a first size that is another axis too is no batch, but for states.

    A state is (layers, batch, units), whatever its name: its batch is the first size of another input.
    """
    firsts = {dim_name(dim) for value in values for dim in value.type.tensor_type.shape.dim[:1]} - {""}
    for value in values:
        dims = value.type.tensor_type.shape.dim
        if len(dims) != 3 or not is_known(dims[0]) or not is_known(dims[2]):
            continue
        batch = dim_name(dims[1])
        if batch in firsts and not re.search(COUNTED, batch.lower()):
            sizes.setdefault(batch, BATCH)
    for value in values:
        dims = value.type.tensor_type.shape.dim
        later = {dim_name(dim) for dim in dims[1:]} - {dim_name(dim) for dim in dims[:1]} - {""}
        known = dict(sizes)
        guessed_shape(value, known, length)
        sizes.update({name: size for name, size in known.items() if name in later})
    return {value.name: guessed_shape(value, sizes, length) for value in values}


def _is_signal(value: ValueInfoProto, names: Sequence[str]) -> bool:
    """Return whether the last size counts samples: (batch, samples), or (batch, at most two channels, samples)."""
    tensor = value.type.tensor_type
    *front, last = tensor.shape.dim
    if is_known(last) or tensor.elem_type not in FLOATS or len(front) not in (1, 2):
        return False
    if len(front) == 2 and not (is_known(front[1]) and front[1].dim_value <= 2):
        return False
    return re.search(SIGNALS, f"{value.name} {names[-1]}".lower()) is not None


def _guessed_size(symbol: str, guess: int, sizes: dict[str, int], length: int) -> int:
    if not symbol:
        return guess
    if symbol not in sizes:
        terms = [term.strip() for term in symbol.split("+")]
        kinds = ((BATCHES, BATCH), (IMAGES, IMAGE[2]), (SEQUENCES, length))
        size = next((size for words, size in kinds if re.search(words, symbol.lower())), guess)
        if len(terms) > 1 and all(terms):
            size = sum(int(term) if term.isdecimal() else _guessed_size(term, guess, sizes, length) for term in terms)
        elif size == BATCH and re.search(COUNTED, symbol.lower()) and not re.search(BATCHES, symbol.lower()):
            size = length  # a first size that is no batch
        sizes[symbol] = size
    return sizes[symbol]


def guessed_sets(values: Sequence[ValueInfoProto]) -> list[dict[str, tuple[int, ...]]]:
    """Return likely shapes of all inputs: a set for each of ``LENGTHS`` if only batches and lengths are open, else one.

    Lengths move together. What grows from call to call (``past``) and sums of sizes have one length: ``--generate``
    is for such models.
    """
    guessed = [guessed_shapes(values, {}, length) for length in LENGTHS]
    names = [dim_name(dim) for value in values for dim in value.type.tensor_type.shape.dim]
    if any("past" in name.lower() or "+" in name for name in names) or not _vary(values, guessed[0], guessed[-1]):
        return guessed[-1:]
    return guessed


def _vary(
    values: Sequence[ValueInfoProto], short: dict[str, tuple[int, ...]], long: dict[str, tuple[int, ...]]
) -> bool:
    """Return whether some open sizes are lengths, and all others are batches."""
    pairs = [
        (short[value.name][axis], long[value.name][axis])
        for value in values
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not is_known(dim)
    ]
    return all(one != other or other == BATCH for one, other in pairs) and any(one != other for one, other in pairs)


ASSUMED_NOTE = "tune.assumed"
"""Key of the model's metadata under which sizes that are assumed are noted, for people."""


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


def input_flag(name: str, shape: Sequence[int | str]) -> str:
    """The ``--input`` option for one shape, as a shell takes it."""
    return f"--input {shlex.quote(f'{name}:' + 'x'.join(map(str, shape)))}"


def drop_notes(model: onnx.ModelProto, key: str) -> None:
    """Remove, in place, the notes under ``key`` that a file brings along."""
    keep_only(model.metadata_props, lambda entry: entry.key != key)


def bind_inputs(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]], path: Path) -> None:
    """Fix the shape of every graph input, in place. A symbol that one input fixes is fixed wherever it is used.

    Args:
        model: its inputs may have symbolic, unknown or missing shapes.
        inputs: input name → shape, from ``--input``.
        path: the model's, for messages.

    An open batch is the one that another input's shape gives, else 1. Without ``inputs``, other open sizes are guessed.
    What is assumed is noted for people (``ASSUMED_NOTE``).

    Raises:
        UsageError: if ``inputs`` names no input or does not fit a rank, a fixed dimension or a shared symbol.
        ModelError: if an input is not a tensor, has an unknown shape, or is left open by the other shapes of
            ``inputs``; the message has the command to give.
    """
    name = path.name
    drop_notes(model, ASSUMED_NOTE)
    values = true_inputs(model.graph)
    unknown = [key for key in inputs if key not in {value.name for value in values}]
    if unknown:
        names = [value.name for value in values]
        raise UsageError(
            f"--input {unknown[0]}:… names no input of {name}; {did_you_mean(unknown[0], names)}"
            f"its inputs are: {', '.join(names) or 'none'}"
        )
    symbols: dict[str, int] = {}
    batches = open_batches(values)
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
    if not inputs:
        _bind_guesses(model, symbols, name)
    _require_fixed(values, inputs, symbols, path)
    for value in model.graph.output:
        _bind_symbols(value.type.tensor_type.shape, symbols)


def _bind_given(value: ValueInfoProto, sizes: tuple[int, ...], symbols: dict[str, int], name: str) -> None:
    """Set one input's shape to ``sizes`` and note which symbols that fixes."""
    tensor = value.type.tensor_type
    flag = input_flag(value.name, sizes)
    if any(size < 1 for size in sizes):
        raise UsageError(f"{flag} has a dimension below 1; every dimension must be at least 1")
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(TensorShapeProto())
        tensor.shape.dim.extend(TensorShapeProto.Dimension(dim_value=size) for size in sizes)
        return
    described = f"input {value.name!r} of {name} is {shape_text(tensor.shape)}"
    if len(sizes) != len(tensor.shape.dim):
        raise UsageError(f"{flag} has {len(sizes)} dimensions but {described}; give {len(tensor.shape.dim)}")
    for dim, size in zip(tensor.shape.dim, sizes, strict=True):
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


def open_batches(values: Sequence[ValueInfoProto]) -> set[str]:
    """The inputs whose first size is an open batch.

    It is one unless its name says what else it counts, or is that of another axis too.
    """
    elsewhere = {dim_name(dim) for value in values for dim in value.type.tensor_type.shape.dim[1:]} - {""}
    names = set()
    for value in values:
        dims = value.type.tensor_type.shape.dim
        symbol = "" if not dims else dim_name(dims[0])
        if dims and not is_known(dims[0]) and symbol not in elsewhere and not re.search(COUNTED, symbol.lower()):
            names.add(value.name)
    return names


def _bind_batches(
    model: onnx.ModelProto,
    values: Sequence[ValueInfoProto],
    inputs: Mapping[str, Sequence[int]],
    symbols: dict[str, int],
    name: str,
) -> None:
    """Give open batches, the first sizes of ``values``, their size, in place, and note where that is assumed.

    Nothing is done where other sizes are open too: what is said then shows all of them.
    """
    batches = {int(inputs[value.name][0]) for value in values if value.name in inputs}
    size = min(batches) if len(batches) == 1 else 1
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
    if len(batches) != 1:
        shape = [dim.dim_value for dim in left[0].type.tensor_type.shape.dim]
        text = f"{name}: the open batch is taken as 1 ({described}); for another size say, for example,"
        model.metadata_props.add(key=ASSUMED_NOTE, value=f"{text} {input_flag(left[0].name, [8, *shape[1:]])}")


def _bind_guesses(model: onnx.ModelProto, symbols: dict[str, int], name: str) -> None:
    """Give open sizes the guessed ones, in place, and note that. An input of unknown rank has none."""
    values = true_inputs(model.graph)
    left = [value for value in values if not is_fixed(value.type.tensor_type)]
    if not left or not all(value.type.tensor_type.HasField("shape") for value in left):
        return
    shapes = guessed_shapes(left, symbols)
    model.metadata_props.add(key=ASSUMED_NOTE, value=assumed_text(name, left, [shapes]))
    for value in left:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dim.dim_value = size


def assumed_text(name: str, values: Sequence[ValueInfoProto], sets: Sequence[Mapping[str, Sequence[int]]]) -> str:
    """Return the line about open sizes that are assumed: as the model has them, and as ``--input`` would ask for them.

    Args:
        name: the model's.
        values: inputs with open sizes.
        sets: a shape of each input in each set.
    """
    flags, bound = list[str](), set[str]()
    axes = (zip(*(shapes[value.name] for shapes in sets), strict=True) for value in values)
    is_paired = len({sizes for of_input in axes for sizes in of_input if len(set(sizes)) > 1}) > 1
    for value in values:
        dims = value.type.tensor_type.shape.dim
        open_names = [dim_name(dim) for dim in dims if not is_known(dim)]
        if all(symbol in bound for symbol in open_names) and open_names:
            continue  # another input's option says them
        bound |= set(open_names) - {""}
        if is_paired:
            flags += [input_flag(value.name, shapes[value.name]) for shapes in sets]
            continue
        sizes = zip(*(shapes[value.name] for shapes in sets), strict=True)
        flags.append(input_flag(value.name, [_sizes_text(list(dict.fromkeys(choices))) for choices in sizes]))
    described = ", ".join(f"{value.name!r} is {shape_text(value.type.tensor_type.shape)}" for value in values)
    return f"{name}: open sizes are taken as {' '.join(flags)} ({described}); for others give --input"


def _sizes_text(sizes: Sequence[int]) -> str:
    return "{" + ",".join(map(str, sizes)) + "}" if len(sizes) > 1 else str(sizes[0])


def _require_fixed(
    values: Sequence[ValueInfoProto], inputs: Mapping[str, Sequence[int]], symbols: Mapping[str, int], path: Path
) -> None:
    open_values = [value for value in values if not is_fixed(value.type.tensor_type)]
    if not open_values:
        return
    told = ", ".join(f"input {value.name!r} has {_described(value)}" for value in open_values)
    sizes = dict(symbols)
    shapes = {**inputs, **guessed_shapes(open_values, sizes)}
    flags = " ".join(input_flag(name, shape) for name, shape in shapes.items())
    raise ModelError(
        f"{path.name}: {told}; fix them with --input. Try: tune run {shlex.quote(str(path))} {flags} (guessed sizes)"
    )


def _described(value: ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    return f"dynamic dimensions ({shape_text(tensor.shape)})" if tensor.HasField("shape") else "an unknown shape"
