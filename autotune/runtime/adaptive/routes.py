"""Which engine answers requests of which sizes, decided by the times of live requests."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.interface import OpenSpec

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, in order."""

REFERENCE, KERNELS = "onnxruntime", "kernels"
ENGINES = (REFERENCE, KERNELS)

TIMED = 6
"""Live requests of one range of sizes that each engine answers before one of them is chosen. Heuristic."""

LEAST_GAIN = 1.02
"""Kernels are chosen if they are this many times as fast: less is noise. Heuristic."""


def rounded(size: int) -> int:
    """Return the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is at least ``size``."""
    power = 1 << max(0, size - 1).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power


@dataclass
class Route:
    """How requests of one range of sizes are answered.

    Attributes:
        sizes: upper ends of the open sizes.
        engine: the chosen engine; None until both were timed.
        requests: answered requests by engine.
        times: seconds per element of the open sizes, by engine; the first request of each is left out.
        warm: engines that have answered since times were last begun.
        is_claimed: whether a request compares, or has compared, the kernels' answer with ONNX Runtime's.
        is_checked: whether they agreed.
        gain: latency of ONNX Runtime over that of the kernels; None until both were timed.
    """

    sizes: tuple[int, ...]
    engine: str | None = None
    gain: float | None = None
    is_claimed: bool = False
    is_checked: bool = False
    warm: set[str] = field(default_factory=set)
    requests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ENGINES})


class Routes:
    """The routes of a model. Safe to call from several threads."""

    def __init__(self, inputs: Sequence[OpenSpec]) -> None:
        axes: dict[object, tuple[int, int]] = {}
        for number, spec in enumerate(inputs):
            for axis, size in enumerate(spec.shape):
                if isinstance(size, str):
                    axes.setdefault((number, axis) if size == "?" else size, (number, axis))
        self._axes = tuple(axes.values())
        self._lock = threading.Lock()
        self._routes: dict[tuple[int, ...], Route] = {}

    def renew(self) -> None:
        """Begin again in the child of a fork, where nobody compares what another thread of the parent compared."""
        self._lock = threading.Lock()
        for route in self._routes.values():
            route.is_claimed = route.is_checked or route.engine is not None

    def of(self, shapes: Shapes) -> tuple[Route, int]:
        """The route of a request, and the product of its open sizes."""
        sizes = [shapes[number][axis] for number, axis in self._axes]
        key = tuple(map(rounded, sizes))
        route = self._routes.get(key)
        if route is None:
            with self._lock:
                route = self._routes.setdefault(key, Route(key))
        return route, max(1, math.prod(sizes))

    def all(self) -> list[Route]:
        """Every route, by sizes."""
        with self._lock:
            return [self._routes[key] for key in sorted(self._routes)]

    def turn(self, route: Route) -> str:
        """The engine that answers the next request: the one with fewer times until one is chosen."""
        if route.engine is not None:
            return route.engine
        return KERNELS if len(route.times[KERNELS]) <= len(route.times[REFERENCE]) else REFERENCE

    def claim(self, route: Route) -> bool:
        """Return whether the caller is the one that compares the engines' answers; only the first is."""
        with self._lock:
            first, route.is_claimed = not route.is_claimed, True
            return first

    def add(self, route: Route, engine: str, seconds: float, elements: int) -> bool:
        """Note a request that ``engine`` answered; whether an engine was chosen by it."""
        with self._lock:
            route.requests[engine] += 1
            if route.engine is not None:
                return False
            if engine not in route.warm:
                route.warm.add(engine)
                return False
            times = route.times[engine]
            times.append(seconds / elements)
            del times[:-TIMED]
            if any(len(route.times[name]) < TIMED for name in ENGINES):
                return False
            slow, fast = (statistics.median(route.times[name]) for name in ENGINES)
            route.gain = slow / max(fast, 1e-12)
            route.engine = KERNELS if route.gain >= LEAST_GAIN else REFERENCE
            return True

    def begin_again(self) -> None:
        """Compare and time both engines again on every route: the kernels are others now."""
        with self._lock:
            for key, route in self._routes.items():
                self._routes[key] = Route(key, requests=route.requests)

    def time_again(self) -> None:
        """Time both engines again where one was chosen by its times, as when nothing is tuned beside them any more."""
        with self._lock:
            for key, route in self._routes.items():
                if route.gain is not None:
                    self._routes[key] = Route(key, is_claimed=True, is_checked=True, requests=route.requests)

    def choose(self, route: Route, engine: str) -> None:
        """Choose an engine for another reason than its times."""
        with self._lock:
            route.engine = engine

    def to_data(self) -> list[Any]:
        """The choices as plain data."""
        return [[list(route.sizes), route.engine, route.gain] for route in self.all() if route.engine is not None]

    def restore(self, data: object) -> None:
        """Take over the choices of ``to_data``; what cannot be read is left out."""
        with self._lock:
            for entry in data if isinstance(data, list) else []:
                match entry:
                    case [list(sizes), ("onnxruntime" | "kernels") as engine, (float() | None) as gain] if all(
                        isinstance(size, int) for size in sizes
                    ):
                        key = tuple(sizes)
                        before = self._routes.get(key) or Route(key)
                        self._routes[key] = Route(key, str(engine), gain, True, True, requests=before.requests)
