"""``--generate``: the sets of shapes of a decoder, guessed from the names and shapes of its inputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from autotune.importer.generation.caches import SCATTER, caches_of
from autotune.importer.onnx_model.shapes import dim_name, is_known, true_inputs
from autotune.options import Generation
from schedules.vocabulary.errors import UsageError, first_line

logger = logging.getLogger(__name__)

Shape = tuple[int, ...]
TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "tokens", "ids")
"""Names of what is new; the first integer input of two axes where there is none of them."""


def generation_shapes(path: Path, wanted: Generation) -> tuple[Mapping[str, Shape], ...]:
    """A set of shapes for every bucket of prompts, and one for single tokens at every number of sequences.

    Raises:
        UsageError: if the model keeps no cache, or a size cannot be guessed.
    """
    try:
        graph_of = onnx.load(path, load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({first_line(error)}); give an ONNX file") from error
    caches = caches_of(graph_of)
    values = true_inputs(graph_of.graph)
    if not caches:
        raise UsageError(
            f"{path.name} keeps no cache that is known (its inputs: {', '.join(v.name for v in values)}); leave "
            "--generate out, or export it with past key values"
        )
    past = values[caches[0].past].type.tensor_type.shape.dim
    fixed = caches[0].kind == SCATTER
    positions = past[2].dim_value if is_known(past[2]) else wanted.positions
    tokens = _tokens(values)
    sizes = [(1, length) for length in sorted({*wanted.prompts} - {1})] + [(batch, 1) for batch in wanted.sequences]
    known = past[0].dim_value if is_known(past[0]) else 0
    sizes = list(dict.fromkeys((known or batch, length) for batch, length in sizes))
    too_long = [length for _, length in sizes if length >= positions]
    if too_long:
        raise UsageError(
            f"prompts of {too_long[0]} positions do not go into a cache of {positions}; give --prompts below it, or "
            "more --positions"
        )
    names = {value.name: [dim_name(dim) for dim in value.type.tensor_type.shape.dim] for value in values}
    sequence = names[tokens.name][1]
    sets = []
    for batch, length in sizes:
        symbols = {names[values[caches[0].past].name][0]: batch, sequence: length}
        if not fixed:
            symbols[names[values[caches[0].past].name][2]] = positions - length
        shapes = {}
        for value in values:
            shapes[value.name] = tuple(
                dim.dim_value if is_known(dim) else _size(value.name, axis, dim_name(dim), symbols, positions)
                for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            )
        sets.append(shapes)
    logger.warning(
        "guessed: tokens are %r, caches are %d inputs such as %r of %d positions (%s); prompts in parts of %s, then "
        "single tokens of %s sequences; say otherwise with --positions, --prompts and --sequences",
        tokens.name,
        len(caches),
        values[caches[0].past].name,
        positions,
        caches[0].kind,
        ", ".join(str(length) for _, length in sizes if length > 1) or "1",
        ", ".join(str(batch) for batch, length in sizes if length == 1),
    )
    return tuple(sets)


def _tokens(values: list[onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
    named = {value.name: value for value in values}
    for name in TOKENS:
        if name in named:
            return named[name]
    for value in values:
        tensor = value.type.tensor_type
        if tensor.elem_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) and len(tensor.shape.dim) == 2:
            return value
    raise UsageError(f"no input is a table of tokens, batch x length of integers; it has {', '.join(named)}")


def _size(name: str, axis: int, symbol: str, symbols: Mapping[str, int], positions: int) -> int:
    """The size of an open axis: of its name where that is known, a sum of such, or by what names usually say."""
    if symbol in symbols:
        return symbols[symbol]
    terms = [term.strip() for term in symbol.split("+")]
    if len(terms) > 1 and all(term in symbols or term.isdecimal() for term in terms):
        return sum(symbols.get(term, int(term) if term.isdecimal() else 0) for term in terms)
    words = f"{symbol} {name}".lower()
    if "total" in words or ("mask" in name.lower() and axis == 1):
        return positions
    raise UsageError(
        f"the size {symbol or '?'} of input {name!r} (axis {axis}) cannot be guessed; export the model with the names "
        "batch_size, sequence_length, past_sequence_length and total_sequence_length, or with fixed sizes"
    )
