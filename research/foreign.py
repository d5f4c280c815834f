"""``python -m research.foreign [TRACE…] --seeds N``: trials to near the best with the posterior of another machine.

The posteriors are fitted on the recorded layers (``research.prior``) without those of the traces' instruction set, and
compared with the shipped one, which knows it, and with none. The table has geometric means over tasks of mean trials.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, geometric_mean

from autotune.builder.shipped_posteriors import UNRECORDED, shipped_posterior
from autotune.contrib.replay import recorded_runs
from autotune.contrib.replay.recorded_runs import SearchRules, first_guesses
from autotune.contrib.replay.task_replay import search
from autotune.contrib.replay.trace import load_traces
from costmodels.posterior import TemplatePosterior
from research.prior import LAYERS, TEMPLATES, Layer, fitted, load_layers
from schedules.space import Space

TRACES = Path(__file__).parent / "traces" / "avx2"
LARGE = ("conv1x1", "conv1x1-wide", "conv3x3", "conv3x3-strided", "conv3x3-fire", "conv7x7", "dense", "dense-lstm")
NEAR = (1.02, 1.01)
TRIALS, PACE = 192, (1, 3, 4)
"""Most trials of a search, and those of its first slots."""

Posteriors = Mapping[str, TemplatePosterior]
"""Template → what is known of it."""


def foreign(isa: str, machines: Sequence[str]) -> dict[str, TemplatePosterior]:
    """Return the posterior that some machines share, by template, without layers of ``isa``.

    Args:
        machines: names of files; those joined by ``+`` count as one machine.
    """
    known: dict[str, dict[str, list[Layer]]] = {}
    for machine in machines:
        for layer in (layer for name in machine.split("+") for layer in load_layers(LAYERS / f"{name}.npz")):
            if layer.isa != isa:
                known.setdefault(layer.space.split("/")[0], {}).setdefault(machine, []).append(layer)
    return {template: fitted(layers)[UNRECORDED] for template, layers in known.items()}


def _trials(job: tuple[Path, int, int, Posteriors | None]) -> tuple[int, ...]:
    """Trials of one search; ``None`` for the posteriors that ship."""
    path, place, seed, posteriors = job
    trace = load_traces(path).traces[place]

    def known(space: Space, isa: str) -> TemplatePosterior | None:
        if posteriors is None:
            return shipped_posterior(space, isa)
        posterior = posteriors.get(space.name)
        return posterior if posterior is not None and posterior.knows(space) else None

    recorded_runs.shipped_posterior = known
    return search(trace, seed, SearchRules(TRIALS, pace=PACE), NEAR, (), first_guesses(trace)).trials


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.foreign", description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, default=[TRACES / f"{name}.npz" for name in LARGE])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--machines", nargs="*", default=["znver4", "znver4+znver5", "znver4 znver5"], help="sets of files of layers"
    )
    options = parser.parse_args()
    files = {path: load_traces(path).traces for path in options.traces}
    tasks = [
        (path, place)
        for path, traces in files.items()
        for place, trace in enumerate(traces)
        if shipped_posterior(trace.space, trace.isa) is not None
    ]
    isa = next(iter(files.values()))[0].isa
    rivals: dict[str, Posteriors | None] = {"own": None}
    rivals |= {machines: foreign(isa, machines.split()) for machines in options.machines}
    rivals["none"] = {}
    print(f"{len(tasks)} tasks of {', '.join(TEMPLATES)} on {isa}, {options.seeds} seeds")
    print("| posterior | trials to 2 % | 1 % | of own, 2 % | 1 % | per task, 2 % |\n|---|---|---|---|---|---|")
    own: list[float] = []
    with get_context("fork").Pool(2) as pool:
        for name, posteriors in rivals.items():
            jobs = [(path, place, seed, posteriors) for path, place in tasks for seed in range(options.seeds)]
            trials = pool.map(_trials, jobs, chunksize=1)
            means = [
                [fmean(trials[row * options.seeds + seed][near] for seed in range(options.seeds)) for near in range(2)]
                for row in range(len(tasks))
            ]
            shares = [geometric_mean(mean[near] for mean in means) for near in range(2)]
            own = own or shares
            ratios = " | ".join(f"{share / mine:.2f}" for share, mine in zip(shares, own, strict=True))
            every = ", ".join(f"{mean[0]:.1f}" for mean in means[:12])
            print(f"| {name} | {shares[0]:.1f} | {shares[1]:.1f} | {ratios} | {every} |", flush=True)


if __name__ == "__main__":
    main()
