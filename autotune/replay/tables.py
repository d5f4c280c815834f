"""Tables of a comparison: medians with quartiles, geometric means over tasks, ratios to the first named.

A ``Table`` prints, becomes JSON and can be plotted; the raw outcomes stay with ``Replay``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.replay.allocator_replay import ORACLE
from autotune.replay.comparison import Job, ModelOutcome, Replay
from autotune.replay.evaluator_replay import WITHIN
from costmodels.metrics import LEVELS

Numbers = Sequence[float]


@dataclass
class Table:
    """One comparison.

    Attributes:
        title: what is compared, and in which unit.
        heads, rows: for people.
        data: for programs.
        series: what a plot shows: name → group → values.
    """

    title: str
    heads: list[str]
    rows: list[list[str]]
    data: dict[str, Any]
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(np.maximum(list(values), 1e-12)))))


def spread(values: Numbers, form: str = "{:.0f}") -> str:
    """``median (first–third quartile)``."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def _by(outcomes: Mapping[Job, Any], place: tuple[int, int], name: str) -> list[Any]:
    return [found for job, found in outcomes.items() if job.place == place and job.name == name]


def evaluator_table(replay: Replay, names: Sequence[str]) -> Table:
    """Run time of one tuning of 128 candidates, and how often the choice is wrong."""
    outcomes = replay.outcomes("evaluator", replay.tasks(), names)
    base = "fixed" if "fixed" in names else names[0]
    rows, data = [], {}
    spent = {
        name: [float(np.median([one.run_s for one in _by(outcomes, place, name)])) for place in replay.tasks()]
        for name in names
    }
    series: dict[str, dict[str, list[float]]] = {}
    for name in names:
        found = [one for job, one in outcomes.items() if job.name == name]
        wrong = [float(np.mean([one.excess > share for one in found])) for share in WITHIN]
        worst = max(
            float(np.mean([one.excess > WITHIN[0] for one in _by(outcomes, place, name)])) for place in replay.tasks()
        )
        less = [base_s / own_s for base_s, own_s in zip(spent[base], spent[name], strict=True)]
        excess = float(np.quantile([one.excess for one in found], 0.95))
        data[name] = {
            "run_s": spent[name],
            "times_less": geometric_mean(less),
            "least_times_less": min(less),
            "wrong": dict(zip(map(str, WITHIN), wrong, strict=True)),
            "worst_task_wrong": worst,
            "excess_p95": excess,
        }
        rows.append(
            [name, spread(spent[name], "{:.2f}"), f"{geometric_mean(less):.1f}", f"{min(less):.1f}"]
            + [f"{share:.1%}" for share in wrong]
            + [f"{worst:.1%}", f"{excess:.2%}"]
        )
        series[name] = {
            replay.label(place): [100 * one.excess for one in _by(outcomes, place, name)] for place in replay.tasks()
        }
    heads = ["evaluator", "run s of a tuning", f"× less than {base}", "least", "wrong by 2%", "wrong by 5%"]
    heads += ["worst task", "excess p95"]
    return Table("Evaluators: one tuning of 128 candidates per seed", heads, rows, data, series)


def searcher_table(replay: Replay, names: Sequence[str]) -> Table:
    """Trials until within ``near`` of the best."""
    outcomes = replay.outcomes("searcher", replay.tasks(), names)
    rows, data = [], {}
    typical: dict[str, float] = {}
    labels = [replay.label(place) for place in replay.tasks()]
    series: dict[str, dict[str, list[float]]] = {}
    for name in names:
        by_task = [[float(one.trials) for one in _by(outcomes, place, name)] for place in replay.tasks()]
        seconds = [float(np.median([one.tuning_s for one in _by(outcomes, place, name)])) for place in replay.tasks()]
        found = [one for job, one in outcomes.items() if job.name == name]
        typical[name] = geometric_mean(float(np.median(trials)) for trials in by_task)
        thinking = sum(one.thinking_s for one in found) / max(sum(one.asked for one in found), 1)
        share = sum(one.thinking_s for one in found) / sum(one.thinking_s + one.tuning_s for one in found)
        data[name] = {
            "median_trials": {
                replay.label(p): float(np.median(t)) for p, t in zip(replay.tasks(), by_task, strict=True)
            },
            "geometric_mean": typical[name],
            "tuning_s": geometric_mean(seconds),
            "missed": float(np.mean([not one.found for one in found])),
            "thinking_ms_per_trial": 1e3 * thinking,
            "thinking_share": share,
        }
        ratio = f"{typical[name] / typical[names[0]]:.2f}"
        rows.append([name, *(spread(trials) for trials in by_task), f"{typical[name]:.1f}", ratio])
        rows[-1] += [f"{data[name]['missed']:.1%}", f"{1e3 * thinking:.1f}"]
        series[name] = dict(zip(labels, by_task, strict=True))
    heads = ["searcher", *labels, "geo-mean", f"× {names[0]}"]
    heads += ["missed", "ms/trial"]
    title = f"Searchers: trials to within {replay.rules.near - 1:.0%} of the best, median (quartiles)"
    return Table(title, heads, rows, data, series)


def cost_model_table(replay: Replay, names: Sequence[str]) -> Table:
    """Coverage, ranks and errors on configs that were not fitted."""
    outcomes = replay.outcomes("cost model", replay.tasks(), names)
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    series: dict[str, dict[str, list[float]]] = {}
    for name in names:
        for place, count in enumerate(replay.rules.fitted):
            found = [one[place] for job, one in outcomes.items() if job.name == name and one[place] is not None]
            if not found:
                continue
            cover = np.mean([one.quality.coverage for one in found], axis=0)
            facts = {
                "coverage": dict(zip(map(str, LEVELS), cover.tolist(), strict=True)),
                "rank_correlation": float(np.mean([one.quality.rank_correlation for one in found])),
                "top_recall": float(np.mean([one.quality.top_recall for one in found])),
                "error": float(np.mean([one.quality.error for one in found])),
                "fit_ms": 1e3 * float(np.median([one.fit_s for one in found])),
                "predict_ms": 1e3 * float(np.median([one.predict_s for one in found])),
            }
            data[f"{name}/{count}"] = facts
            rows.append(
                [name, str(count), *(f"{share:.0%}" for share in cover)]
                + [f"{facts[key]:.2f}" for key in ("rank_correlation", "top_recall", "error")]
                + [f"{facts[key]:.0f}" for key in ("fit_ms", "predict_ms")]
            )
            series.setdefault(name, {})[str(count)] = [one.quality.coverage[1] for one in found]
    heads = [
        "cost model",
        "fitted on",
        *(f"in {level:.0%}" for level in LEVELS),
        "rank corr",
        "top recall",
        "rms error",
    ]
    heads += ["fit ms", "predict ms"]
    return Table("Cost models: on configs that were not fitted, mean over tasks and seeds", heads, rows, data, series)


def allocator_table(replay: Replay, names: Sequence[str]) -> Table:
    """Time to within ``near`` of the final latency, area, regret against the oracle."""
    places = [(index, 0) for index in range(len(replay.files))]
    outcomes = replay.outcomes("allocator", places, [",".join(names)])
    near, rows, data = replay.rules.near, [], {}
    times: dict[str, list[float]] = {}
    areas: dict[str, list[float]] = {}
    series: dict[str, dict[str, list[float]]] = {}
    for name in [*names, ORACLE]:
        by_model = [[_time_to(one, name, near) for one in _of(outcomes, place)] for place in places]
        area = [[_area(one, name) for one in _of(outcomes, place)] for place in places]
        regret = [[_area(one, name) - _area(one, ORACLE) for one in _of(outcomes, place)] for place in places]
        times[name] = [float(np.median(values)) for values in by_model]
        areas[name] = [float(np.median(values)) for values in area]
        thinking = [
            one.curves[name].thinking_s / max(one.curves[name].times[-1], 1e-9)
            for place in places for one in _of(outcomes, place)
        ]  # fmt: skip
        labels = [replay.files[place[0]].name for place in places]
        data[name] = {
            "time_s": dict(zip(labels, times[name], strict=True)),
            "area_s": dict(zip(labels, areas[name], strict=True)),
            "regret_s": dict(zip(labels, (float(np.median(values)) for values in regret), strict=True)),
            "geometric_mean_s": geometric_mean(times[name]),
            "area_geometric_mean_s": geometric_mean(areas[name]),
            "thinking_share": float(np.mean(thinking)),
            "curves": {
                label: _mean_curve(_of(outcomes, place), name) for label, place in zip(labels, places, strict=True)
            },
        }
        own = (geometric_mean(times[name]), geometric_mean(areas[name]))
        base = (geometric_mean(times[names[0]]), geometric_mean(areas[names[0]]))
        rows.append([name, *(spread(values, "{:.1f}") for values in by_model)])
        rows[-1] += [f"{own[0]:.1f}", f"{own[0] / base[0]:.2f}", f"{own[1]:.1f}", f"{own[1] / base[1]:.2f}"]
        rows[-1].append(f"{np.mean(thinking):.2%}")
        series[name] = dict(zip(labels, by_model, strict=True))
    heads = ["allocator", *(replay.files[place[0]].name for place in places), "geo-mean", f"× {names[0]}"]
    heads += ["area s", "area ×", "thinking"]
    title = f"Allocators: seconds to within {near - 1:.0%} of the final model latency, median (quartiles)"
    return Table(title, heads, rows, data, series)


def _of(outcomes: Mapping[Job, ModelOutcome], place: tuple[int, int]) -> list[ModelOutcome]:
    return [found for job, found in outcomes.items() if job.place == place]


def _time_to(outcome: ModelOutcome, name: str, near: float) -> float:
    return min(outcome.curves[name].time_to(near * outcome.final_s), 2.0 * outcome.total_s)


def _area(outcome: ModelOutcome, name: str) -> float:
    return outcome.curves[name].area(outcome.final_s, outcome.total_s)


def _mean_curve(outcomes: Sequence[ModelOutcome], name: str, points: int = 120) -> dict[str, list[float]]:
    """Latency over final latency, median over seeds, at times even in their logarithm."""
    horizon = float(np.median([one.total_s for one in outcomes]))
    grid = np.geomspace(0.05, horizon, points)
    shares = []
    for one in outcomes:
        curve = one.curves[name]
        at = np.searchsorted(curve.times, grid, side="right") - 1
        shares.append(curve.latencies[at] / one.final_s)
    return {"time_s": grid.round(4).tolist(), "ratio": np.median(shares, axis=0).round(5).tolist()}
