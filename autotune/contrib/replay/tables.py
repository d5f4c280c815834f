"""Tables of a comparison: medians with quartiles, geometric means over tasks, ratios to the first named.

A ``Table`` prints, becomes JSON and can be plotted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from autotune.contrib.replay.allocator_replay import ONE_BY_ONE, ORACLE
from autotune.contrib.replay.comparison import ModelOutcome, Replay
from autotune.contrib.replay.task_replay import WITHIN
from costmodels.metrics import LEVELS

EXCESS_LEVEL = 0.95
"""Share of the choices of an evaluator that are no worse than the excess in its table."""

CURVE_POINTS = 120
"""Points of a curve of model latency."""


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
    rows: list[list[str]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(np.maximum(list(values), 1e-12)))))


def spread(values: Sequence[float], form: str = "{:.0f}") -> str:
    """``median (first–third quartile)``."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{form.format(middle)} ({form.format(low)}–{form.format(high)})"


def evaluator_table(replay: Replay, names: Sequence[str]) -> Table:
    """Run time of one tuning of 128 candidates, and how often the choice is wrong."""
    outcomes = replay.outcomes("evaluator", replay.tasks(), names)
    base = "fixed" if "fixed" in names else names[0]
    table = Table(
        "Evaluators: one tuning of 128 candidates per seed",
        ["evaluator", "run s of a tuning", f"× less than {base}", "least", "wrong by 2%", "wrong by 5%", "worst task",
         "excess p95"],
    )  # fmt: skip
    spent = {name: [_median(one.run_s for one in of_task) for of_task in outcomes[name].values()] for name in names}
    for name, by_task in outcomes.items():
        excess = {replay.label(place): [one.excess for one in of_task] for place, of_task in by_task.items()}
        every = list(chain(*excess.values()))
        wrong = {str(share): _share(one > share for one in every) for share in WITHIN}
        less = [base_s / own_s for base_s, own_s in zip(spent[base], spent[name], strict=True)]
        facts = {
            "run_s": spent[name],
            "times_less": geometric_mean(less),
            "least_times_less": min(less),
            "wrong": wrong,
            "worst_task_wrong": max(_share(one > WITHIN[0] for one in values) for values in excess.values()),
            "excess_p95": float(np.quantile(every, EXCESS_LEVEL)),
        }
        table.data[name] = facts
        table.rows.append(
            [name, spread(spent[name], "{:.2f}"), f"{facts['times_less']:.1f}", f"{min(less):.1f}"]
            + [f"{share:.1%}" for share in wrong.values()]
            + [f"{facts['worst_task_wrong']:.1%}", f"{facts['excess_p95']:.2%}"]
        )
        table.series[name] = {label: [100 * one for one in values] for label, values in excess.items()}
    return table


def searcher_table(replay: Replay, names: Sequence[str]) -> Table:
    """Trials until within each share of the best, a row for each."""
    labels = [replay.label(place) for place in replay.tasks()]
    table = Table(
        f"Searchers: trials to near the best, first guesses: {replay.rules.guesses}, the same for every searcher, "
        "median (quartiles)",
        ["searcher", "within", *labels, "geo-mean", f"× {names[0]}, paired", "tuning s", "missed", "ms/trial"],
    )
    for name, by_task in replay.outcomes("searcher", replay.tasks(), names).items():
        by_label = {replay.label(place): outcomes for place, outcomes in by_task.items()}
        every = list(chain(*by_label.values()))
        thinking_s = sum(one.thinking_s for one in every)
        facts: dict[str, Any] = {
            "within": {},
            "thinking_ms_per_trial": 1e3 * thinking_s / max(sum(one.asked for one in every), 1),
            "thinking_share": thinking_s / sum(one.thinking_s + max(one.tuning_s) for one in every),
        }
        table.data[name] = facts
        for place, near in enumerate(replay.rules.near):
            trials = {label: [float(one.trials[place]) for one in of] for label, of in by_label.items()}
            medians = {label: _median(values) for label, values in trials.items()}
            within = {
                "median_trials": medians,
                "geometric_mean": geometric_mean(medians.values()),
                "tuning_s": geometric_mean(_median(one.tuning_s[place] for one in of) for of in by_label.values()),
                "missed": _share(not one.reached[place] for one in every),
            }
            facts["within"][percent(near)] = within
            table.series[f"{name} {percent(near)}"] = trials
            within["ratio"], within["ratio_error"] = paired_ratio(trials, table.series[f"{names[0]} {percent(near)}"])
            table.rows.append(
                [name, percent(near), *map(spread, trials.values()), f"{within['geometric_mean']:.1f}",
                 f"{within['ratio']:.2f} ± {within['ratio_error']:.2f}",
                 f"{within['tuning_s']:.2f}", f"{within['missed']:.1%}", f"{facts['thinking_ms_per_trial']:.1f}"]
            )  # fmt: skip
    return table


def paired_ratio(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Geometric mean of ours / theirs, seed by seed and task by task, and its standard error.

    Args:
        ours, theirs: label → one value for each seed, in the same order. Equal seeds meet the same measurements.
    """
    logs = np.concatenate([np.log(ours[label]) - np.log(theirs[label]) for label in ours])
    ratio = float(np.exp(np.mean(logs)))
    return ratio, ratio * float(np.std(logs) / np.sqrt(len(logs)))


def percent(near: float) -> str:
    """``1.05`` → ``5%``."""
    return f"{100.0 * (near - 1.0):g}%"


def cost_model_table(replay: Replay, names: Sequence[str]) -> Table:
    """Coverage, ranks and errors on configs that were not fitted."""
    table = Table(
        "Cost models: on configs that were not fitted, mean over tasks and seeds",
        ["cost model", "fitted on", *(f"in {level:.0%}" for level in LEVELS), "rank corr", "top recall",
         "80% at the top", "doubt rank", "doubt spread", "rms error", "fit ms", "predict ms"],
    )  # fmt: skip
    for name, by_task in replay.outcomes("cost model", replay.tasks(), names).items():
        for place, count in enumerate(replay.rules.fitted):
            fits = [one[place] for one in chain(*by_task.values()) if one[place] is not None]
            if not fits:
                continue
            cover = np.mean([one.quality.coverage for one in fits], axis=0).tolist()
            means = {
                key: float(np.mean([getattr(one.quality, key) for one in fits]))
                for key in ("rank_correlation", "top_recall", "top_coverage", "doubt_rank", "doubt_spread", "error")
            }
            milliseconds = {
                "fit_ms": 1e3 * _median(one.fit_s for one in fits),
                "predict_ms": 1e3 * _median(one.predict_s for one in fits),
            }
            table.data[f"{name}/{count}"] = {
                "coverage": dict(zip(map(str, LEVELS), cover, strict=True)), **means, **milliseconds
            }  # fmt: skip
            table.rows.append(
                [name, str(count), *(f"{share:.0%}" for share in cover)]
                + [f"{value:.2f}" for value in means.values()]
                + [f"{value:.0f}" for value in milliseconds.values()]
            )
            table.series.setdefault(name, {})[str(count)] = [one.quality.coverage[1] for one in fits]
    return table


def allocator_table(replay: Replay, names: Sequence[str]) -> Table:
    """Time to within each share of the final latency, a row for each; area; the oracle as a bound."""
    rules = replay.rules
    places = [(index, 0) for index in range(1 if rules.portfolio else len(replay.files))]
    (by_model,) = replay.outcomes("allocator", places, [",".join(names)]).values()
    whole = " + ".join(file.name for file in replay.files)
    models: dict[str, list[ModelOutcome]] = {
        whole if rules.portfolio else replay.files[place[0]].name: outcomes for place, outcomes in by_model.items()
    }
    table = Table(
        "Allocators: seconds to near the final model latency, median (quartiles)",
        ["allocator", "within", *models, "geo-mean", f"× {names[0]}", "× oracle", "area s", "thinking"],
    )
    order = [*names, *([ONE_BY_ONE] if rules.portfolio else []), ORACLE]
    for name in order:
        areas = {label: _median(one.area(name) for one in outcomes) for label, outcomes in models.items()}
        curves = [one.curves[name] for one in chain(*models.values())]
        facts: dict[str, Any] = {
            "within": {},
            "area_s": areas,
            "area_geometric_mean_s": geometric_mean(areas.values()),
            "thinking_share": float(np.mean([curve.thinking_s / max(curve.times[-1], 1e-9) for curve in curves])),
            "curves": {label: _median_curve(outcomes, name) for label, outcomes in models.items()},
        }
        table.data[name] = facts
        for near in rules.near:
            times = {label: [one.time_to(name, near) for one in outcomes] for label, outcomes in models.items()}
            medians = {label: _median(values) for label, values in times.items()}
            facts["within"][percent(near)] = {"time_s": medians, "geometric_mean_s": geometric_mean(medians.values())}
            table.series[f"{name} {percent(near)}"] = times
    for name in order:
        facts = table.data[name]
        for near in rules.near:
            times = table.series[f"{name} {percent(near)}"]
            mean_s, first_s, bound_s = (
                table.data[other]["within"][percent(near)]["geometric_mean_s"] for other in (name, names[0], ORACLE)
            )
            table.rows.append(
                [name, percent(near), *(spread(values, "{:.1f}") for values in times.values()), f"{mean_s:.2f}",
                 f"{mean_s / first_s:.2f}", f"{mean_s / bound_s:.2f}", f"{facts['area_geometric_mean_s']:.2f}",
                 f"{facts['thinking_share']:.2%}"]
            )  # fmt: skip
    return table


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean(list(flags)))


def _median_curve(outcomes: Sequence[ModelOutcome], name: str) -> dict[str, list[float]]:
    """Latency over final latency, median over seeds, at times even in their logarithm."""
    horizon = float(np.median([one.total_s for one in outcomes]))
    grid = np.geomspace(0.05, horizon, CURVE_POINTS)
    shares = [one.curves[name].at(grid) / one.final_s for one in outcomes]
    return {"time_s": grid.round(4).tolist(), "ratio": np.median(shares, axis=0).round(5).tolist()}
