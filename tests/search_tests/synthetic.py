"""Made-up kernels with the shape of real latency surfaces, to compare searchers without a device.

A latency is the work of a roofline-like model (vector units fill from eight accumulators, ragged tiles waste lanes,
loads against multiply-adds, chunks over threads) with the cliffs that real kernels have (spilled registers, L1 and L2
footprints, instruction cache), times a quirk of the config that no feature explains, times measurement noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from schedules.config import Config
from schedules.space import Columns, Knob, Space
from tuning_logs.measurement import Measurement

PEAK = 2.1e11  # floating point operations per second of one thread
THREADS = 2
REGISTERS = 32
NOISE = 0.03
QUIRK = 0.02


def _waste(extent: float, tile: Floats) -> Floats:
    """Share of useful lanes when ``extent`` is cut into ``tile``s."""
    return extent / (np.ceil(extent / tile) * tile)


def _cliff(value: Floats, limit: float, penalty: float) -> Floats:
    """1 below ``limit``, ``penalty`` above, with a short slope as caches have."""
    return 1.0 + (penalty - 1.0) / (1.0 + np.exp(-6.0 * np.log(np.maximum(value, 1e-9) / limit) / np.log(2.0)))


def _divisors(extent: int, most: int) -> tuple[int, ...]:
    return tuple(tile for tile in range(1, min(extent, most) + 1) if extent % tile == 0)


@dataclass(frozen=True)
class Conv:
    """A blocked convolution: output height and width, input and output channel blocks of 16, kernel width.

    Knobs, constraint, features and first guesses have the form of the convolution template's.
    """

    height: int
    width: int
    inputs: int
    outputs: int
    kernel: int

    def features(self, columns: Columns) -> dict[str, Floats]:
        """What the template derives."""
        to, th, tw, rows = columns["to"], columns["th"], columns["tw"], columns["rows"]
        tile = to * th * tw
        jobs = (self.outputs / to) * (self.height / rows)
        weights = to * self.inputs * self.kernel**2 * 16.0 * 64.0
        return {
            "accumulators": tile,
            "loads_per_fma": (to + th * tw) / tile,
            "balance": jobs / (np.ceil(jobs / THREADS) * THREADS),
            "weights_l2": np.log2(weights / (1 << 20)),
            "starved": np.maximum(0.0, 8.0 - tile),
        }

    def seconds(self, columns: Columns) -> Floats:
        """(n,) latency without quirk and noise."""
        seen = self.features(columns)
        tile, rows, unroll = seen["accumulators"], columns["rows"], columns["unroll"]
        fill = np.minimum(1.0, tile / 10.0) ** 0.7
        bound = 1.0 / np.maximum(1.0, 1.7 * seen["loads_per_fma"])
        slow = 1.0 + 0.25 * (tile + columns["to"] > REGISTERS - 2)
        patch = (rows + self.kernel - 1) * (self.width + self.kernel - 1) * 64.0
        slow *= _cliff(2.0 ** seen["weights_l2"], 1.0, 1.2) * _cliff(patch, 24 << 10, 1.15)
        slow *= _cliff(tile * unroll, 160.0, 1.25) * (1.0 + 0.05 / unroll)
        repad = (rows + self.kernel - 1) / rows - 1.0
        slow *= np.where(columns["pad"] == 1, 1.0 + 0.05 * repad * self.outputs / columns["to"] / 8.0, 1.04)
        weights_total = self.outputs * self.inputs * self.kernel**2 * 1024.0
        slow *= np.where(columns["outer"] == (weights_total > (1 << 20)), 1.05, 1.0)
        chunk_s = 3e-6 * self.height / rows * self.outputs / columns["to"]
        flop = 2.0 * self.height * self.width * self.outputs * 16 * self.inputs * 16 * self.kernel**2
        return flop * slow / (PEAK * THREADS * fill * bound * seen["balance"]) + chunk_s * 0.02

    def broken(self, columns: Columns) -> NDArray[np.bool_]:
        """(n,) which rows do not compile in time."""
        return np.asarray(columns["to"] * columns["th"] * columns["tw"] * columns["unroll"] * self.kernel > 700)

    def space(self) -> Space:
        """Hundreds to a few thousand configs, with the eight guesses an expert would make first."""
        knobs = (
            Knob("to", _divisors(self.outputs, 8)),
            Knob("th", _divisors(self.height, 7)),
            Knob("tw", _divisors(self.width, 28)),
            Knob("unroll", (1, 2, 4, 8, 16)),
            Knob("rows", _divisors(self.height, 16)),
            Knob("pad", (0, 1) if self.kernel > 1 else (0,)),
            Knob("outer", (0, 1)),
        )
        bare = Space("conv", 1, knobs, constraint=self._fits, derive=self.features)
        columns = bare.columns(bare.rows)
        seen = self.features(columns)
        tile = seen["accumulators"]
        penalty = 4.0 * seen["loads_per_fma"] + 0.5 * np.maximum(0, 10 - tile) + 0.5 * np.maximum(0, tile - 20)
        penalty += 3.0 * (1 - seen["balance"]) + 0.05 * np.abs(np.log2(columns["unroll"]) - 2)
        penalty += 0.05 * np.abs(columns["rows"] - columns["th"])
        first: dict[tuple[float, ...], Config] = {}
        for index in np.argsort(penalty, kind="stable"):
            signature = tuple(columns[name][index] for name in ("to", "th", "tw", "pad"))
            first.setdefault(signature, bare.config(bare.rows[index]))
        return Space(bare.name, 1, knobs, self._fits, self.features, tuple(first.values())[:8])

    @staticmethod
    def _fits(columns: Columns) -> NDArray[np.bool_]:
        tile = columns["to"] * columns["th"] * columns["tw"]
        return np.asarray((tile <= 28) & (columns["unroll"] * tile <= 256) & (columns["rows"] % columns["th"] == 0))


@dataclass(frozen=True)
class Pool2d:
    """A memory-bound reduction: a small flat space."""

    rows: int

    def features(self, columns: Columns) -> dict[str, Floats]:
        return {"chunk": np.log2(columns["chunk"] * columns["lanes"])}

    def seconds(self, columns: Columns) -> Floats:
        chunks = self.rows / columns["chunk"]
        balance = chunks / (np.ceil(chunks / THREADS) * THREADS)
        return (
            self.rows * 1e-8 * (1.0 + 0.2 * np.abs(np.log2(columns["lanes"] / 16.0))) * (1.0 + 0.5 / chunks) / balance
        )

    def broken(self, columns: Columns) -> NDArray[np.bool_]:
        return np.zeros(len(columns["chunk"]), dtype=np.bool_)

    def space(self) -> Space:
        knobs = (Knob("chunk", (1, 2, 4, 8, 16, 32)), Knob("lanes", (4, 8, 16, 32)), Knob("unroll", (0, 1)))
        return Space("pool", 1, knobs, derive=self.features)


@dataclass(frozen=True)
class Tiling:
    """A generic three-loop program whose space is too large to list and knows no features."""

    size: int

    def features(self, columns: Columns) -> dict[str, Floats]:
        return {}

    def seconds(self, columns: Columns) -> Floats:
        sums = columns["m0"] * columns["n0"]
        inner = columns["m0"] * columns["m1"] * columns["k1"] + columns["n0"] * columns["n1"] * 16.0 * columns["k1"]
        slow = 1.0 + 0.05 * np.maximum(sums - 28, 0) + 1.5 / np.minimum(sums, 8.0)
        slow *= _cliff(inner * 4.0, 32 << 10, 1.2) * _cliff(inner * 4.0, 1 << 20, 1.5) * (1.0 + 0.3 / columns["k1"])
        slow *= 1.0 + 0.1 * np.abs(np.log2(columns["unroll"] / 4.0)) + 0.15 * (columns["vector"] == 0)
        chunks = np.ceil(self.size / (columns["m0"] * columns["m1"]))
        balance = chunks / (np.ceil(chunks / THREADS) * THREADS)
        useful = _waste(self.size, columns["m0"] * columns["m1"]) * _waste(
            self.size / 16, columns["n0"] * columns["n1"]
        )
        return 2.0 * self.size**3 * slow / (PEAK * THREADS * balance * useful)

    def broken(self, columns: Columns) -> NDArray[np.bool_]:
        return np.asarray(columns["m0"] * columns["n0"] * columns["unroll"] > 1024)

    def space(self) -> Space:
        powers = (1, 2, 3, 4, 6, 8, 12, 16)
        knobs = (
            *(Knob(name, powers) for name in ("m0", "m1", "n0", "n1")),
            Knob("k1", (1, 2, 4, 8, 16, 32, 64)),
            Knob("unroll", (1, 2, 4, 8, 16)),
            Knob("vector", (0, 1)),
        )
        return Space("tiling", 1, knobs)


class Bench:
    """One made-up task: its space, its true latencies and noisy measurements of them."""

    def __init__(self, kernel: Conv | Pool2d | Tiling, seed: int = 0) -> None:
        self.kernel = kernel
        self.space = kernel.space()
        self._seed = seed
        rows = self.space.rows if self.space.enumerated else self._sampled_rows()
        truth = self._truth(rows)
        self.best_s = float(np.nanmin(truth))
        self.near_share = float(np.mean(truth <= 1.05 * self.best_s))

    def _sampled_rows(self) -> NDArray[np.int32]:
        rng = np.random.default_rng(1)
        rows = [rng.integers(len(knob.choices), size=200_000) for knob in self.space.knobs]
        return np.stack(rows, axis=1).astype(np.int32)

    def _truth(self, rows: NDArray[np.int32]) -> Floats:
        """(n,) true latency of each row, NaN where it fails."""
        columns: Mapping[str, Floats] = self.space.columns(rows)
        mixed = (rows.astype(np.uint64) + np.uint64(1)) @ np.array(
            [1_000_003**index % (1 << 61) for index in range(rows.shape[1])], dtype=np.uint64
        )
        mixed = (mixed ^ np.uint64(self._seed * 7919 + 13)) * np.uint64(0x9E3779B97F4A7C15)
        uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)
        quirk = np.exp(QUIRK * np.sqrt(12.0) * (uniform - 0.5))
        return np.where(self.kernel.broken(columns), np.nan, self.kernel.seconds(columns) * quirk)

    def scored(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Features and true scores of every valid config, of a product space of some thousand drawn ones."""
        rows = self.space.rows if self.space.enumerated else rng.permutation(self._sampled_rows())[:4000]
        truth = self._truth(rows)
        return self.space.row_features(rows[~np.isnan(truth)]), -np.log(truth[~np.isnan(truth)])

    def true_s(self, config: Config) -> float:
        """Latency without noise; NaN if it fails."""
        return float(self._truth(self.space.row(config)[None, :])[0])

    def measure(self, config: Config, rng: np.random.Generator) -> Measurement:
        """A noisy timing, or a failure."""
        true_s = self.true_s(config)
        if np.isnan(true_s):
            return Measurement(error="compile_error", message="made up", compile_s=1.0)
        return Measurement(latencies_s=(true_s * float(np.exp(NOISE * rng.standard_normal())),), compile_s=0.05)


BENCHES: dict[str, Bench] = {
    "conv3x3-56": Bench(Conv(56, 56, 4, 4, 3), 1),
    "conv3x3-28": Bench(Conv(28, 28, 8, 8, 3), 7),
    "conv3x3-14": Bench(Conv(14, 14, 16, 16, 3), 2),
    "conv1x1-7": Bench(Conv(7, 7, 128, 32, 1), 3),
    "conv1x1-28": Bench(Conv(28, 28, 8, 32, 1), 4),
    "pool": Bench(Pool2d(512), 5),
    "tiling": Bench(Tiling(512), 6),
}
