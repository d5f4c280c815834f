"""Along which open sizes a call may be padded or split: found out from the reference engine when an artifact is built.

Padding by zeros is right if the first m of n results do not depend on what follows. So what follows is replaced by
zeros, by other random numbers and by huge ones, and the results are compared with those of a model of size m. Splitting
is right if, besides, the last n - m results are those of a model that gets the last n - m inputs alone: a running sum
may be padded and not split. These are experiments: sizes in between are taken to behave alike.

A mask says which positions count. A call is padded by zeros, in its mask too, so an input of integers that decides by
its zeros what the others mean is found by leaving it zero behind the end while all others change.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.backends.executor import LiveCase
from autotune.frame.noise import is_live, live_name
from autotune.graph.steps import MOST_LIVE, LiveRows, LiveSizes, nested
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.interface import ANY_SIZE, Growth, Interface, Shapes, TensorSpec
from autotune.runtime.model_timing import kernel_times
from autotune.runtime.multi_shape_executor import cut
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.validation.verify import compare, random_inputs
from schedules.vocabulary.errors import AutotuneError

logger = logging.getLogger(__name__)

Array = NDArray[Any]
MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes whose multiples are tried where others may not be padded: strides of images, as networks have them. Heuristic,
not measured."""

NEAR, OTHERS = (1, 4), (2, 20, 25)
"""Multiples below the size of a set that are tried, and those at which the model must run at all: where an image is
made smaller five times and larger again, its parts do not fit together at one of them, unless the multiple is the
stride of all five. Heuristic, not measured."""

Feed = Mapping[str, Array]
Reference = Callable[[Feed], Sequence[Array]]
"""The reference engine's outputs for inputs of any shape. It may raise any error for shapes that do not fit."""

HUGE = 1e4
"""Factor of the huge numbers, which stand far above the tolerances of ``compare``. Heuristic, not measured."""


def with_independence(
    interface: Interface, sets: Sequence[Shapes], engines: Sequence[Reference], seed: int
) -> Interface:
    """``interface`` with the symbols along which calls may be padded or split.

    Args:
        sets: the sets of shapes that the artifact is built for.
        engines: compute the model's outputs, the quickest first. Results are alike if they are to one of them: a sum
            that ONNX Runtime rounds differently at another size may end in another byte behind it, and in 64 bits it
            does not.
        seed: of the random inputs.
    """
    if not interface.knows_outputs():
        return interface
    padded, split, limits = set(), set(), {}
    for symbol in interface.symbols:
        largest = max(sets, key=partial(_suits, interface, symbol))
        sizes = [(interface.sizes(shapes) or {})[symbol] for shapes in sets]
        try:
            with third_party():
                own = _limits(interface, symbol, largest, engines, seed)
                if own is not None and not any(size % own[1] for size in sizes):
                    padded.add(symbol)
                    if own != ANY_SIZE:
                        limits[symbol] = own
                    elif _may_split(interface, symbol, largest, engines, seed):
                        split.add(symbol)
        except (
            AutotuneError,
            ThirdPartyError,
        ) as error:  # such a size is not served
            logger.debug("%s is neither padded nor split: %s", symbol, error)
    return replace(interface, padded=frozenset(padded), split=frozenset(split), limits=limits)


def _suits(interface: Interface, symbol: str, shapes: Shapes) -> tuple[int, int]:
    """The larger, the better a set suits experiments along ``symbol``: it has most of that, and little else."""
    return (interface.sizes(shapes) or {})[symbol], -sum(math.prod(shape) for shape in shapes.values())


def _cut(feed: Feed, axes: Mapping[str, Sequence[int]], start: int, stop: int | None) -> dict[str, Array]:
    """``feed`` from ``start`` to ``stop`` along these axes of its inputs."""
    return {name: cut(array, axes.get(name, ()), start, stop) for name, array in feed.items()}


def _case(interface: Interface, symbol: str, largest: Shapes, seed: int) -> tuple[Feed, int, list[int]]:
    """Random inputs of the largest size, that size, and smaller ones to try."""
    specs = [TensorSpec(spec.name, tuple(largest[spec.name]), spec.dtype) for spec in interface.inputs]
    size = (interface.sizes(largest) or {})[symbol]
    least, multiple = interface.limits.get(symbol, ANY_SIZE)
    smaller = {least, *_smaller(size, multiple)} & set(range(max(1, least), size))
    return random_inputs(specs, seed), size, sorted(smaller)


def _smaller(size: int, multiple: int) -> list[int]:
    """Sizes to try below ``size``: the least, about half of it and the one before."""
    return sorted({multiple, size // 2 // multiple * multiple, size - multiple} & set(range(1, size)))


def _first(
    interface: Interface, outputs: Sequence[Array], full: Shapes, sizes: Mapping[str, int], start: int = 0
) -> list[Array]:
    """The part of results that counts at ``sizes``, if they were made at the shapes ``full``.

    Args:
        start: how many entries to leave out of those of the only open size in ``sizes``.
    """
    whole, parts = interface.sizes(full) or {}, []
    for number, array in enumerate(outputs):
        index = [slice(None)] * array.ndim
        for axis, size in enumerate(interface.outputs[number].shape):
            if start and size in sizes:
                index[axis] = slice(interface.scale[number, axis].of(start), None)
        parts.append(interface.cut_output(number, array, whole, {**whole, **sizes})[tuple(index)])
    return parts


def _same(ours: Sequence[Array], theirs: Sequence[Array]) -> bool:
    return compare("", list(ours), list(theirs)).passed


class _Answers:
    """Answers of the engines to one feed; each is asked once, and only if it is needed."""

    def __init__(self, engines: Sequence[Reference], feed: Feed) -> None:
        self._engines, self._feed = engines, feed
        self._known: dict[int, Sequence[Array]] = {}

    def are(self, others: Callable[[int], Sequence[Array]]) -> bool:
        """Return whether one engine answers the same as ``others`` has of its number."""
        return any(_same(others(number), self.of(number)) for number in range(len(self._engines)))

    def of(self, number: int) -> Sequence[Array]:
        """The answer of the engine of this number."""
        if number not in self._known:
            self._known[number] = self._engines[number](self._feed)
        return self._known[number]


def _limits(
    interface: Interface, symbol: str, largest: Shapes, engines: Sequence[Reference], seed: int
) -> tuple[int, int] | None:
    """Return the least size of calls that may be padded along ``symbol``, and of what all such are multiples.

    None if they never may. Some sizes alone are tried where an input says which positions count: detectors take
    multiples of 32, a border of "as many as needed" before a stride depends on the rest, and a signal shorter than all
    windows leaves nothing.
    """
    feed, size, smaller = _case(interface, symbol, largest, seed)
    if not any(live_name(symbol) == spec.name for spec in interface.inputs):
        return ANY_SIZE if smaller and _may_pad(interface, symbol, feed, smaller, engines, seed) else None

    def is_right(few: Sequence[int], taken: Sequence[int] = ()) -> bool:
        try:
            with third_party():
                for own in taken:
                    engines[0](_told_nothing(_cut(feed, interface.axes(symbol), 0, own)))
                return _may_pad(interface, symbol, feed, few, engines, seed)
        except (AutotuneError, ThirdPartyError) as error:  # the model does not take such a size
            logger.debug("%s of %s: %s", symbol, few, error)
            return False

    for multiple in MULTIPLES:
        near, others = ([size - times * multiple for times in own] for own in (NEAR, OTHERS))
        few = sorted({*near, *_smaller(size, multiple)} & set(range(-(-size // 4), size)), reverse=True)
        if few and size % multiple == 0 and is_right(few, [own for own in others if 4 * own >= size]):
            ladder = [multiple << times for times in range(size.bit_length()) if multiple << times < few[-1]]
            least = next((own for own in ladder if is_right([own])), few[-1])
            return ANY_SIZE if (least, multiple) == (1, 1) else (least, multiple)
    return None


def _told_nothing(feed: Feed) -> dict[str, Array]:
    """``feed`` as the model itself takes it, without what says which positions count."""
    return {name: array for name, array in feed.items() if not is_live(name)}


def _may_pad(
    interface: Interface, symbol: str, feed: Feed, smaller: Sequence[int], engines: Sequence[Reference], seed: int
) -> bool:
    """Return whether results of the first entries are those of the model for as many as each of ``smaller``."""
    axes, full = interface.axes(symbol), {name: array.shape for name, array in feed.items()}
    other = random_inputs([TensorSpec(n, a.shape, str(a.dtype)) for n, a in feed.items()], seed + 1)

    def first(whole: _Answers, few: int, number: int) -> list[Array]:
        return _first(interface, whole.of(number), full, {symbol: few})

    def is_right(mask: str | None) -> bool:
        for few in smaller:
            alone = _Answers(engines, _told_nothing(_cut(feed, axes, 0, few)))
            for changed in _tails(feed, other, axes, few, mask):
                whole = _Answers(engines, changed)
                if not alone.are(partial(first, whole, few)):
                    return False
        return True

    return any(map(is_right, (None, *_masks(feed, axes))))


def _masks(feed: Feed, axes: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the inputs that may be masks. Floats are none: a zero among them may be neutral by chance."""
    names = [name for name in axes if not is_live(name)]
    return [name for name in names if feed[name].dtype.kind in "iub"] if len(names) > 1 else []


def _tails(
    feed: Feed, other: Feed, axes: Mapping[str, Sequence[int]], few: int, mask: str | None
) -> Iterator[dict[str, Array]]:
    """The inputs with something else behind the first ``few``; zeros in a ``mask``, and in what says what counts."""
    for factor in (0, 1, HUGE):
        changed = dict(feed)
        for name, mine in axes.items():
            scale = 0 if name == mask or is_live(name) else factor if feed[name].dtype.kind == "f" else min(factor, 1)
            changed[name] = (scale * other[name]).astype(feed[name].dtype)
            index = [slice(None)] * feed[name].ndim
            for axis in mine:
                index[axis] = slice(0, few)
            changed[name][tuple(index)] = feed[name][tuple(index)]
        yield changed


def _may_split(interface: Interface, symbol: str, largest: Shapes, engines: Sequence[Reference], seed: int) -> bool:
    axes = interface.axes(symbol)
    if interface.parts:
        return False
    once = all(spec.shape.count(symbol) == 1 for spec in interface.outputs)  # not the products of all pairs of rows
    even = all(growth.ratio is not None for growth in interface.scale.values())
    if (
        not once
        or not even
        or any(len(mine) > 1 for mine in axes.values())
        or set(axes) != {s.name for s in interface.inputs}
    ):
        return False  # what does not belong to one part alone would have to be put together
    feed, size, smaller = _case(interface, symbol, largest, seed)
    whole = _Answers(engines, feed)

    def rest(few: int, number: int) -> list[Array]:
        return _first(interface, whole.of(number), largest, {symbol: size}, few)

    return all(_Answers(engines, _cut(feed, axes, few, None)).are(partial(rest, few)) for few in smaller)


def live_sizes(
    artifact: Artifact, interface: Interface, shapes: Shapes, seed: int, growths: Mapping[str, Sequence[Growth]]
) -> LiveSizes | None:
    """Return the jobs that a part for ``shapes`` may leave out, along the open sizes where most of its time can go.

    None if nothing may be left out, or if leaving it out changes a result.

    Args:
        growths: ways in which axes follow each open size, besides as many.
    """
    executor = OneShapeExecutor(artifact, None)
    candidates: list[tuple[float, LiveRows]] = []
    sizes = interface.sizes(shapes) or {}
    cases: dict[str, list[LiveCase]] = {}
    seconds: tuple[float, ...] = ()
    for symbol in sorted(symbol for symbol in interface.padded if sizes[symbol] > 1):
        cases[symbol] = _live_cases(executor, interface, symbol, shapes, seed)
        ways = growths.get(symbol, ())
        rows = executor.live_rows(symbol, sizes[symbol], cases[symbol], ways) if cases[symbol] else None
        if rows is not None:
            alone = {symbol: cases[symbol]}
            tried = partial(_leaves_results_alone, artifact, executor, interface, shapes, alone)
            rows = _without_wrong(rows, tried)
        if rows is None:
            continue
        if not seconds:
            zeros = cases[symbol][0].zeros
            seconds = tuple(spent_s for _, spent_s in kernel_times(partial(executor.profile, zeros)))
        saved_s = sum(spent_s for spent_s, jobs in zip(seconds, rows.calls, strict=True) if jobs.groups)
        candidates.append((saved_s, rows))
    most = [rows for _, rows in sorted(candidates, key=lambda item: -item[0])][:MOST_LIVE]
    for chosen in (nested(most), *((rows,) for rows in most)):
        live = LiveSizes(chosen, seconds)
        if chosen and _leaves_results(replace(artifact, live=live), executor, interface, shapes, cases):
            return live
    return None


def _leaves_results_alone(
    artifact: Artifact,
    whole: OneShapeExecutor,
    interface: Interface,
    shapes: Shapes,
    cases: Mapping[str, Sequence[LiveCase]],
    rows: LiveRows,
) -> bool:
    """``_leaves_results`` of jobs along one open size."""
    return _leaves_results(replace(artifact, live=LiveSizes((rows,))), whole, interface, shapes, cases)


def _without_wrong(rows: LiveRows, leaves_results: Callable[[LiveRows], bool]) -> LiveRows | None:
    """``rows`` less the calls that change results where jobs of them are left out; None if nothing is left.

    Axes of the same size may be taken for one another, which shows here: calls are halved until the wrong ones are
    found.
    """

    def only(numbers: Collection[int]) -> LiveRows:
        calls = (jobs if at in numbers else replace(jobs, groups=0) for at, jobs in enumerate(rows.calls))
        return replace(rows, calls=tuple(calls))

    def right(numbers: list[int]) -> list[int]:
        if not numbers or leaves_results(only(numbers)):
            return numbers
        half = len(numbers) // 2
        return [*right(numbers[:half]), *right(numbers[half:])] if half else []

    kept = right([at for at, jobs in enumerate(rows.calls) if jobs.groups])
    return only(kept) if kept and leaves_results(only(kept)) else None


def _leaves_results(
    artifact: Artifact,
    whole: OneShapeExecutor,
    interface: Interface,
    shapes: Shapes,
    cases: Mapping[str, Sequence[LiveCase]],
) -> bool:
    """Return whether ``artifact`` gives the results of ``whole`` although it leaves jobs out, whatever ran before.

    Every size is tried alone, and all of them together.
    """
    assert artifact.live is not None
    few, sizes = OneShapeExecutor(artifact, None), artifact.live.sizes
    for symbols in {frozenset(size.symbol for size in sizes), *(frozenset([size.symbol]) for size in sizes)}:
        for together in zip(*(cases[symbol] for symbol in sorted(symbols)), strict=False):
            count = dict(zip(sorted(symbols), (case.live for case in together), strict=True))
            zeros = [*together[0].zeros]
            for case in together[1:]:  # where one of them has zeros behind the end, all have
                zeros = [np.where(other == 0, other, array) for array, other in zip(zeros, case.zeros, strict=True)]
            few.run([np.zeros_like(array) for array in zeros])  # other numbers lie everywhere now
            left = few.run_live(zeros, [count.get(size.symbol, size.rows) for size in sizes])
            right = whole.run(zeros)
            left, right = (_first(interface, outputs, shapes, count) for outputs in (left, right))
            if not _same(left, right):
                logger.debug("leaving out jobs of %s changes results; all run", ", ".join(sorted(symbols)))
                return False
    return True


def _live_cases(
    executor: OneShapeExecutor, interface: Interface, symbol: str, shapes: Shapes, seed: int
) -> list[LiveCase]:
    """Calls of smaller sizes, with zeros and with other numbers behind the end; none if no mask makes them alike."""
    feed, size, smaller = _case(interface, symbol, shapes, seed)
    smaller = sorted({*smaller, *(n for n in (size // 3, 3 * size // 4 + 1) if n and interface.may_pad(symbol, n))})
    axes = interface.axes(symbol)
    random = random_inputs([TensorSpec(n, a.shape, str(a.dtype)) for n, a in feed.items()], seed + 1)
    # Few integers are drawn, so that half of them would be zeros behind the end as well.
    other = {n: np.maximum(a, 1) if a.dtype.kind in "iu" else a for n, a in random.items()}

    def first(changed: Feed, few: int) -> list[Array]:
        return _first(interface, executor.run(list(changed.values())), shapes, {symbol: few})

    for mask in (None, *_masks(feed, axes)):
        cases = []
        for few in reversed(smaller):  # large ones first, which show most
            zeros, changed, _ = _tails(feed, other, axes, few, mask)
            if not _same(first(zeros, few), first(changed, few)):
                break
            cases.append(LiveCase(few, list(zeros.values()), list(changed.values())))
        else:
            return cases
    return []
