"""Programs of subgraphs put together into one graph, with copies where a value passes from memory to memory.

A value has a place. A subgraph finds what it reads in the memory of its lane, and a value is copied into a memory once,
however many subgraphs read it there; what only subgraphs of one device read never leaves it. Pure but for NumPy's
arrays, which are only handed on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Place, Source, Use
from autotune.graph.lanes import HOST, Way
from autotune.graph.steps import Piece
from autotune.host.dtypes import numpy_type, word
from autotune.interface import TensorSpec

DEVICE_CALL = "@"
"""Begins the symbol of a call that a device answers; no kernel's name begins so."""

COPY = f"{DEVICE_CALL}copy"
"""The call that brings a tensor into another memory."""

JOIN = f"{DEVICE_CALL}join"
"""The call that stands for a tensor whose parts are written in place; it is never made."""


@dataclass(frozen=True)
class Part:
    """A subgraph's program.

    Attributes:
        name: of the subgraph.
        flat: its calls; its inputs are numbered as in ``inputs``.
        inputs, outputs: names of the values that pass between subgraphs.
        memory: where it reads and writes them.
    """

    name: str
    flat: Flat
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    memory: str = HOST


@dataclass(frozen=True)
class Transfer:
    """A value that is copied.

    Attributes:
        value: its name.
        way: from which memory to which.
        call: number of the call that copies it.
    """

    value: str
    way: Way
    call: int


@dataclass(frozen=True)
class Merged:
    """All subgraphs as one graph.

    Attributes:
        flat: the calls of one subgraph after those of another, each after the copies that it waits for.
        calls: (parts,) the numbers of each subgraph's calls.
        transfers: in the order in which subgraphs ask for them, then those of the model's outputs.
    """

    flat: Flat
    calls: tuple[tuple[int, ...], ...]
    transfers: tuple[Transfer, ...]


def device_symbol(name: str, number: int) -> str:
    """The call that stands for output ``number`` of the subgraph ``name``; number 0 runs it."""
    return f"{DEVICE_CALL}{name}#{number}"


def device_flat(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], memory: str) -> Flat:
    """A subgraph that a device runs: one call runs it, on what it reads and the outputs of the calls before it.

    Every output but the first has a call of its own, which does nothing: it makes room for what the last call writes.
    """

    def use(place: Place, index: int, spec: TensorSpec) -> Use:
        return Use(Source(place, index), spec.shape, str(word(numpy_type(spec.dtype))))

    def call(number: int, arguments: tuple[Use, ...]) -> FlatCall:
        written = use("arena", 0, outputs[number])
        return FlatCall(device_symbol(name, number), arguments, written.shape, written.dtype, memory)

    others = tuple(use("arena", number - 1, spec) for number, spec in enumerate(outputs) if number)
    read = tuple(use("input", index, spec) for index, spec in enumerate(inputs))
    calls = (*(call(number, ()) for number in range(1, len(outputs))), call(0, (*read, *others)))
    return Flat(calls, (use("arena", len(calls) - 1, outputs[0]), *others), {}, frozenset(), ())


Joins = Mapping[str, Sequence[str]]
"""Value → the values that follow each other in memory where it is: parts of an operator that was cut."""


def merge(
    parts: Sequence[Part],
    inputs: Sequence[str],
    outputs: Sequence[str],
    joins: Joins | None = None,
    direct: Collection[Way] = (),
) -> Merged:
    """``parts`` as one graph.

    Args:
        parts: in an order in which they can run.
        inputs: names of the model's inputs, in its order; they lie in the host's memory.
        outputs: names of its outputs, in its order; each is made by a part, and ends in the host's memory.
        joins: values that subgraphs read and none makes as a whole; none of them is the model's.
        direct: ways from one device to another, past the host's memory.
    """
    sources = {(name, HOST): Source("input", number) for number, name in enumerate(inputs)}
    merging = _Merging(sources, joins or {}, direct)
    numbers = [merging.add(part) for part in parts]
    uses = tuple(replace(merging.shapes[name], source=merging.source(name, HOST)) for name in outputs)
    flat = Flat(tuple(merging.calls), uses, merging.slices, frozenset(merging.removed), tuple(merging.weights))
    return Merged(flat, tuple(numbers), tuple(merging.transfers))


@dataclass
class _Merging:
    """The graph as far as it is put together.

    Attributes:
        sources: (value, memory) → what holds it there.
        joined: calls that stand for values of ``joins``; all of them vanish.
        shapes: value → as it was made, or as the first subgraph reads it.
        homes: value → where it was made.
    """

    sources: dict[tuple[str, str], Source]
    joins: Joins
    direct: Collection[Way] = ()
    joined: list[int] = field(default_factory=list)
    shapes: dict[str, Use] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    calls: list[FlatCall] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    slices: dict[int, Slice] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    weights: list[NDArray[Any]] = field(default_factory=list)

    def add(self, part: Part) -> tuple[int, ...]:
        """Put ``part`` behind what is there; the numbers of its calls."""
        flat = part.flat
        used = {use.source.index: use for call in flat.calls for use in call.arguments if use.source.place == "input"}
        read, known = {}, len(self.joined)
        for index, use in sorted(used.items()):
            self.shapes.setdefault(part.inputs[index], use)
            read[index] = self.source(part.inputs[index], part.memory)
        first, first_weight = len(self.calls), len(self.weights)

        def placed(use: Use) -> Use:
            if use.source.place == "input":
                return replace(use, source=read[use.source.index])
            base = first_weight if use.source.place == "weight" else first
            return replace(use, source=Source(use.source.place, base + use.source.index))

        self.calls += [replace(call, arguments=tuple(map(placed, call.arguments))) for call in flat.calls]
        self.slices |= _moved(flat.slices, first)
        self.removed |= {first + call for call in flat.removed}
        self.weights += flat.weights
        for name, use in zip(part.outputs, flat.outputs, strict=True):
            self.shapes[name], self.homes[name] = use, part.memory
            self.sources[name, part.memory] = placed(use).source
        return (*self.joined[known:], *range(first, len(self.calls)))

    def source(self, value: str, memory: str) -> Source:
        """Return the source of ``value`` in ``memory``; copy it there first if need be, through the host."""
        if (value, memory) not in self.sources and value in self.joins:
            self.sources[value, memory] = self._join(value, memory)
        elif (value, memory) not in self.sources:
            home = self.homes.get(value, HOST)
            before = home if memory == HOST or (home, memory) in self.direct else HOST
            use = replace(self.shapes[value], source=self.source(value, before))
            self.transfers.append(Transfer(value, (before, memory), len(self.calls)))
            self.sources[value, memory] = Source("arena", len(self.calls))
            self.calls.append(FlatCall(COPY, (use,), use.shape, use.dtype, memory))
        return self.sources[value, memory]

    def _join(self, value: str, memory: str) -> Source:
        """``value`` in place: each of its parts is written where it belongs in it, or copied there."""
        parts = [replace(self.shapes[part], source=self.source(part, memory)) for part in self.joins[value]]
        number, offset, whole = len(self.calls), 0, self.shapes[value]
        for use in parts:
            assert use.source.place == "arena"
            assert use.source.index not in self.slices
            self.slices[use.source.index] = Slice(number, offset)
            offset += self.calls[use.source.index].bytes
        self.calls.append(FlatCall(JOIN, tuple(parts), whole.shape, whole.dtype, memory))
        self.removed.add(number)
        self.joined.append(number)
        return Source("arena", number)


def copy_name(value: str, way: Way) -> str:
    """Return the name of a copy where subgraphs have names."""
    return f"{value} to {way[1] or 'the host'}"


def with_transfers(
    pieces: Sequence[Piece], merged: Merged, engines: Mapping[Way, int], asked: Sequence[tuple[str, Way]]
) -> list[Piece]:
    """``pieces`` with a piece for every copy, before the first that waits for it.

    Args:
        pieces: subgraphs, in order.
        engines: way → number of the lane that copies on it.
        asked: (value, way) in the order in which each way carries them; what is missing comes when it is waited for.
    """
    rank = {request: number for number, request in enumerate(asked)}
    by_call = {transfer.call: transfer for transfer in merged.transfers}
    queue = sorted(
        merged.transfers, key=lambda transfer: (rank.get((transfer.value, transfer.way), len(rank)), transfer.call)
    )
    edges, done, all_pieces = merged.flat.edges, set[int](), list[Piece]()

    def ready(transfer: Transfer) -> bool:
        return done.issuperset(edges[transfer.call])

    def bring(transfer: Transfer) -> None:
        for read in edges[transfer.call]:
            if read in by_call and read not in done:
                bring(by_call[read])
        before = queue[: queue.index(transfer)]
        for ahead in [*(other for other in before if other.way == transfer.way and ready(other)), transfer]:
            queue.remove(ahead)
            done.add(ahead.call)
            all_pieces.append(Piece(copy_name(ahead.value, ahead.way), (ahead.call,), engines[ahead.way]))

    for piece in pieces:
        for call in piece.calls:
            for read in edges[call]:
                if read in by_call and read not in done:
                    bring(by_call[read])
        done.update(piece.calls)
        all_pieces.append(piece)
    while queue:
        bring(queue[0])
    return all_pieces


def _moved(slices: Mapping[int, Slice], first: int) -> dict[int, Slice]:
    return {first + part: Slice(first + known.parent, known.offset) for part, known in slices.items()}
