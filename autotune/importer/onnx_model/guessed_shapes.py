"""Likely sizes of axes that a model leaves open, by the kind of axis: batch, image, signal, length of a sequence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx import TensorProto, ValueInfoProto

from autotune.importer.onnx_model.shapes import dim_name, is_known

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
    """Return a likely shape of each input; a first size that is another axis too is no batch."""
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
