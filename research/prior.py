"""``python -m research.prior STAGE``: make the posterior that ships (``costmodels/posterior.py``) and judge it.

    record --seconds S   tune networks of random layers on this machine, and add what was measured to
                         research/layers/MACHINE.npz; other seeds than before, on an otherwise idle machine
    train                fit the posteriors of all machines recorded, and write autotune/builder/posteriors/*.npz
    judge LOG…           what the posterior likes, among the configs that other models' logs measured, beside the first
                         guess of the template; and the same for random layers left out of the fit
    calibrate            how often the posterior's intervals hold what tasks and machines left out of the fit took

A table's share is the best measured latency over that of the config chosen, as a geometric mean over tasks and weighted
by their time; *of 3* is the fastest of the three that the posterior likes best.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import xgboost
from scipy.optimize import minimize

from autotune.builder.shipped_posteriors import FOLDER, UNRECORDED, save_posteriors
from autotune.host.machine import host_target
from costmodels.cost_model import Floats, Prediction
from costmodels.metrics import LEVELS, coverage
from costmodels.posterior import (
    Basis,
    Spread,
    TaskRows,
    TemplatePosterior,
    Trees,
    tree_features,
)
from costmodels.surrogate import bend
from research.random_layers import random_cnn, random_mlp
from schedules import lower
from schedules.space import Space
from tuning_logs.sql_store import open_log

ROOT = Path(__file__).parents[1]
LAYERS = Path(__file__).parent / "layers"
WORK = ROOT / "build" / "prior"

TEMPLATES = "conv2d", "matmul"
"""The templates with a prior: those that take nearly all the time of most models. Others need networks of their own."""

TRIALS = 40
"""Configs measured of a layer: by the default search, so that most are among the fast ones, where the prior decides."""

FEWEST = 8
"""Configs that a layer must have measured to tell fast from slow."""

MACHINE_SPREAD = (0.02, 0.006)
"""Standard deviations of the weights of features and of products between machines. Chosen on ``conv2d``, where the 80 %
intervals of a machine left out then hold 81 to 91 % of its configs, for either machine; judged on ``matmul``
(docs/lab/2026-11-28-posterior.md). Two machines are too few to fit them."""

FIRST_SPREAD = Spread(MACHINE_SPREAD, (0.02, 0.01), 0.05, 3.0, 0.03)
"""The first point of the search for the spreads."""

FIRST_WEIGHTS = (0.1, 0.03)
"""Standard deviations of the weights before their spread was seen."""

STEPS, SOME = 90, 60
"""Steps of the search for the spreads, and layers that it looks at."""

TREES = {
    "max_depth": 6,
    "eta": 0.1,
    "min_child_weight": 10,
    "subsample": 0.6,
    "colsample_bynode": 0.5,
    "num_parallel_tree": 4,
    "nthread": 2,
    "seed": 0,
}
ROUNDS = 60
"""Of boosting. Trees of 100 rounds are twice as large and no better."""


@dataclass(frozen=True)
class Layer:
    """What was measured of one task.

    Attributes:
        space: of its configs, ``name/version``.
        isa: of the machine.
        names: (d,) of the features.
        extents: (e,) of its loops.
        features: (n, d).
        latency_s: (n,).
        first: the row of the template's first guess, if it was measured.
    """

    space: str
    isa: str
    names: tuple[str, ...]
    extents: tuple[int, ...]
    features: Floats
    latency_s: Floats
    first: int | None

    @property
    def rows(self) -> TaskRows:
        """Return the rows as the posterior takes them."""
        return TaskRows(self.features, -np.log(self.latency_s), self.extents)

    @property
    def kind(self) -> tuple[str, tuple[str, ...], int]:
        """Layers of one kind can be learned from together."""
        return self.space, self.names, len(self.extents)


def layers_of(log_path: Path) -> list[Layer]:
    """The tasks of a log whose templates have a prior."""
    log = open_log(log_path)
    targets, layers = log.targets(), []
    for key in log.counts():
        program = log.workload(key.task)
        if program is None or key.space.split("/")[0] not in TEMPLATES:
            continue
        space = lower.claim(lower.load_program(program), targets[key.target]).space
        timed = [record for record in log.records(key) if record.measurement.ok and space.contains(record.config)]
        if len(timed) >= FEWEST:
            layers.append(_layer(space, targets[key.target].isa, [(r.config, r.measurement.latency_s) for r in timed]))
    log.close()
    return layers


def _layer(space: Space, isa: str, timed: list) -> Layer:  # type: ignore[type-arg]
    configs = [config for config, _ in timed]
    first = next((configs.index(config) for config in space.initial[:1] if config in configs), None)
    latencies = np.array([latency_s for _, latency_s in timed])
    return Layer(space.identity, isa, space.feature_names, space.extents, space.features(configs), latencies, first)


def save_layers(path: Path, layers: Sequence[Layer]) -> None:
    """One file of a machine."""
    facts = [
        {
            "space": x.space,
            "isa": x.isa,
            "names": x.names,
            "extents": x.extents,
            "first": x.first,
            "n": len(x.latency_s),
        }
        for x in layers
    ]
    tables = {f"features{i}": x.features.astype(np.float32) for i, x in enumerate(layers)}
    latency_s = np.concatenate([x.latency_s for x in layers]).astype(np.float32)
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, facts=json.dumps(facts), latency_s=latency_s, **tables)


def load_layers(path: Path) -> list[Layer]:
    """What ``save_layers`` wrote."""
    with np.load(path) as file:
        facts, latency_s, start, layers = json.loads(str(file["facts"])), file["latency_s"], 0, []
        for index, fact in enumerate(facts):
            timed = latency_s[start : start + fact["n"]].astype(np.float64)
            table = file[f"features{index}"].astype(np.float64)
            names, extents = tuple(fact["names"]), tuple(fact["extents"])
            layers.append(Layer(fact["space"], fact["isa"], names, extents, table, timed, fact["first"]))
            start += fact["n"]
    return layers


def fitted(machines: Mapping[str, Sequence[Layer]]) -> dict[str, TemplatePosterior]:
    """Return the posteriors of layers of one kind by machine, and that of a machine that nobody recorded.

    Spreads and the machines' weights take turns twice: the weights by those spreads, the spreads by those weights.
    """
    layers = [layer for own in machines.values() for layer in own]
    features = np.concatenate([layer.features for layer in layers])
    space, names, extents = layers[0].kind
    basis = Basis(features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6))
    width, terms = len(names), len(names) * (len(names) + 3) // 2
    no_trees = Trees(np.zeros((1, 1), np.int16), np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.float32))
    blank = TemplatePosterior(space, names, extents, basis, np.zeros(terms), np.eye(terms), FIRST_SPREAD, no_trees)
    variances = basis.diagonal(FIRST_WEIGHTS)
    for _ in range(2):
        weights, covariances = _machines(blank, machines, variances)
        blank = replace(blank, spread=_spreads(blank, machines, weights))
        squares = np.mean([weights[kind] ** 2 + np.diag(covariances[kind]) for kind in machines], axis=0)
        variances = np.repeat([squares[:width].mean(), squares[width:].mean()], [width, terms - width])
    weights, covariances = _machines(blank, machines, variances)
    trees = _trees(blank, machines, weights)
    return {
        kind: replace(blank, weights=weights[kind], root=np.linalg.cholesky(covariances[kind]), trees=trees)
        for kind in weights
    }


def _machines(
    blank: TemplatePosterior, machines: Mapping[str, Sequence[Layer]], variances: Floats
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Means and covariances of w + u by machine, those of ``UNRECORDED`` too; ``variances`` (p,) are those of w."""
    shared, own = np.diag(variances), np.diag(blank.basis.diagonal(MACHINE_SPREAD))
    count, terms = len(machines), len(variances)
    prior = np.kron(np.ones((count, count)), shared) + np.kron(np.eye(count), own)
    inverse, precision, pull = np.linalg.inv(prior), np.zeros_like(prior), np.zeros(len(prior))
    for place, layers in enumerate(machines.values()):
        part = slice(place * terms, (place + 1) * terms)
        for layer in layers:
            more, towards = blank.evidence(layer.rows)
            precision[part, part] += more
            pull[part] += towards
    covariance = np.linalg.inv(inverse + precision)
    mean = covariance @ pull
    gain = np.kron(np.ones((1, count)), shared) @ inverse
    means = dict(zip(machines, mean.reshape(count, terms), strict=True))
    spans = [slice(place * terms, (place + 1) * terms) for place in range(count)]
    covariances = {kind: covariance[span, span] for kind, span in zip(machines, spans, strict=True)}
    unknown = shared + own - gain @ (prior - covariance) @ gain.T
    return {**means, UNRECORDED: gain @ mean}, {**covariances, UNRECORDED: 0.5 * (unknown + unknown.T)}


def _spreads(
    blank: TemplatePosterior, machines: Mapping[str, Sequence[Layer]], weights: Mapping[str, Floats]
) -> Spread:
    """The spreads of the largest marginal likelihood of some layers, given the machines' ``weights``."""
    rows = [(weights[kind], layer.rows) for kind, layers in machines.items() for layer in layers]
    some = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))[:SOME]]

    def spread(logs: Floats) -> Spread:
        linear, products, residual, length, noise = map(float, np.exp(logs))
        return Spread(MACHINE_SPREAD, (linear, products), residual, length, noise)

    def surprise(logs: Floats) -> float:
        candidate, total = replace(blank, spread=spread(logs)), 0.0
        for mean, told in some:
            root = np.linalg.cholesky(candidate.own_covariance(told.features))
            apart = np.linalg.solve(root, -bend(told.scores) - candidate.basis.terms(told.features) @ mean)
            total += float(np.log(np.diag(root)).sum() + 0.5 * apart @ apart)
        return total

    known = blank.spread
    start = np.log([*known.task, known.residual, known.length, known.noise])
    options = {"maxfev": STEPS, "xatol": 0.05, "fatol": 0.5}
    return spread(minimize(surprise, start, method="Nelder-Mead", options=options).x)


def _trees(blank: TemplatePosterior, machines: Mapping[str, Sequence[Layer]], weights: Mapping[str, Floats]) -> Trees:
    """Return the residuals of the linear part on all machines, layers centred."""
    tables, left = [], []
    for kind, layers in machines.items():
        for layer in layers:
            over = -bend(layer.rows.scores) - blank.basis.terms(layer.features) @ weights[kind]
            tables.append(tree_features(layer.features, layer.extents))
            left.append(over - over.mean())
    return heaps(xgboost.train(TREES, xgboost.DMatrix(np.concatenate(tables), np.concatenate(left)), ROUNDS))


def heaps(booster: xgboost.Booster) -> Trees:
    """The booster's trees in arrays; its base score is left out, as a constant of all configs."""
    nodes = 2 ** (int(str(TREES["max_depth"])) + 1) - 1
    dumped = [json.loads(text) for text in booster.get_dump(dump_format="json")]
    trees = Trees(
        np.zeros((len(dumped), nodes), np.int16),
        np.full((len(dumped), nodes), np.inf, np.float32),
        np.zeros((len(dumped), nodes), np.float32),
    )

    def fill(tree: int, place: int, node: dict[str, object]) -> None:
        if place >= nodes:
            return
        if "leaf" in node:
            trees.value[tree, place] = node["leaf"]
            fill(tree, 2 * place + 1, node)
            return
        trees.feature[tree, place] = int(str(node["split"])[1:])
        trees.threshold[tree, place] = node["split_condition"]
        children = {child["nodeid"]: child for child in node["children"]}  # type: ignore[attr-defined]
        fill(tree, 2 * place + 1, children[node["yes"]])
        fill(tree, 2 * place + 2, children[node["no"]])

    for number, tree in enumerate(dumped):
        fill(number, 0, tree)
    return trees


def by_kind(recorded: Mapping[str, Iterable[Layer]]) -> dict[str, dict[str, list[Layer]]]:
    """Template → machine → the layers of the template's most frequent kind."""
    layers = [(layer.space.split("/")[0], machine, layer) for machine, own in recorded.items() for layer in own]
    kinds: dict[str, dict[str, list[Layer]]] = {}
    for template in sorted({template for template, _, _ in layers}):
        most = Counter(layer.kind for name, _, layer in layers if name == template).most_common(1)[0][0]
        kinds[template] = {}
        for name, machine, layer in layers:
            if name == template and layer.kind == most:
                kinds[template].setdefault(machine, []).append(layer)
    return kinds


def by_isa(
    posteriors: Mapping[str, TemplatePosterior], machines: Mapping[str, Sequence[Layer]]
) -> dict[str, TemplatePosterior]:
    """Return the posterior of each instruction set, the mean of the machines with it, and of an unknown machine."""
    isas: dict[str, list[TemplatePosterior]] = {}
    for machine, layers in machines.items():
        isas.setdefault(layers[0].isa, []).append(posteriors[machine])
    means = {isa: _mean(own) for isa, own in isas.items()}
    return {**means, UNRECORDED: posteriors[UNRECORDED]}


def _mean(posteriors: Sequence[TemplatePosterior]) -> TemplatePosterior:
    """One posterior for machines that count alike; it is as sure as they are."""
    weights = np.mean([posterior.weights for posterior in posteriors], axis=0)
    covariance = np.mean([posterior.root @ posterior.root.T for posterior in posteriors], axis=0)
    return replace(posteriors[0], weights=weights, root=np.linalg.cholesky(covariance))


def shares(posterior: TemplatePosterior, layers: Iterable[Layer]) -> str:
    """Cells of a table: layers, then the shares of the first guess, of the posterior's favourite and its best of 3."""
    rows = []
    for layer in layers:
        if layer.first is None or layer.kind != (posterior.space, posterior.names, posterior.extents):
            continue
        order = np.argsort(posterior.slowness(layer.features, layer.extents), kind="stable")
        took = layer.latency_s
        rows.append((took.min(), took[layer.first], took[order[0]], took[order[:3]].min()))
    if not rows:
        return "0 | | | "
    table = np.array(rows)
    ratios = table[:, :1] / table[:, 1:]
    means = np.exp(np.log(ratios).mean(axis=0))
    weighted = table[:, 0].sum() / table[:, 1:].sum(axis=0)
    return f"{len(rows)} | " + " | ".join(f"{a:.1%}, {b:.1%}" for a, b in zip(means, weighted, strict=True))


def held(posterior: TemplatePosterior, layers: Iterable[Layer], own: int) -> str:
    """Cells of a table: how often intervals of each of ``LEVELS`` hold the other configs of a layer.

    Args:
        own: configs of the layer that were measured before; a task's level is taken from them, so at least one.
    """
    rng, means, stds, truths = np.random.default_rng(0), [], [], []
    for layer in layers:
        order = rng.permutation(len(layer.latency_s))
        known, asked = order[:own], order[own:]
        shared = posterior.basis.terms(layer.features) @ posterior.root
        covariance = posterior.own_covariance(layer.features) + shared @ shared.T
        expected, taken = posterior.slowness(layer.features, layer.extents), -bend(layer.rows.scores)
        gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, asked)]).T
        means.append(expected[asked] + gain @ (taken[known] - expected[known]))
        left = np.diag(covariance)[asked] - (gain * covariance[np.ix_(asked, known)]).sum(axis=1)
        stds.append(np.sqrt(left))
        truths.append(taken[asked])
    prediction, truth = Prediction(np.concatenate(means), np.concatenate(stds)), np.concatenate(truths)
    error = float(np.sqrt(np.mean((prediction.mean - truth) ** 2)))
    return " | ".join(f"{coverage(prediction, truth, level):.0%}" for level in LEVELS) + f" | {error:.3f}"


def calibrate() -> None:
    """Print the coverage of intervals on tasks and machines that were left out of the fit."""
    print("| template | left out | known configs | 50 % | 80 % | 95 % | rms error |\n|---|---|---|---|---|---|---|")
    for template, machines in by_kind(recorded()).items():
        part = fitted({name: [x for n, x in enumerate(own) if n % 3] for name, own in machines.items()})
        for name, own in machines.items():
            alone = fitted({other: layers for other, layers in machines.items() if other != name})[UNRECORDED]
            for count in (1, 4, 16):
                print(f"| {template} | tasks of {name} | {count} | {held(part[name], own[::3], count)} |", flush=True)
                print(f"| {template} | all of {name} | {count} | {held(alone, own, count)} |", flush=True)


def record(seconds: float, seed: int, machine: str) -> None:
    """Tune networks of random layers from an empty log until the time is over, and add them to ``machine``'s file."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    end, path, log = time.monotonic() + seconds, WORK / "layers.onnx", WORK / "layers.db"
    while time.monotonic() < end:
        make = random_mlp if seed % 3 == 2 else random_cnn
        onnx.save(make(seed), path)
        command = [sys.executable, "-m", "autotune", "run", str(path), "--log", str(log), "--out", f"{path}.tuned"]
        command += ["--budget", "30m", "--trials", str(TRIALS * 32), "--allocator", "round-robin", "--json"]
        said = subprocess.run([*command, "--seed", str(seed)], cwd=ROOT, capture_output=True, text=True, check=True)
        counts = json.loads(said.stdout)
        print(f"{make.__name__} {seed}: {counts['tasks']} tasks, {counts['measured_trials']} trials", flush=True)
        seed += 1
    layers, file = layers_of(log), LAYERS / f"{machine or host_target().mcpu}.npz"
    save_layers(file, [*(load_layers(file) if file.exists() else []), *layers])
    print(f"{len(layers)} layers, {sum(len(layer.latency_s) for layer in layers)} configs")


def recorded() -> dict[str, list[Layer]]:
    """Machine → its layers."""
    return {path.stem: load_layers(path) for path in sorted(LAYERS.glob("*.npz"))}


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.prior", description=__doc__)
    parser.add_argument("stage", choices=("record", "train", "judge", "calibrate"))
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first network to record")
    parser.add_argument("--machine", default="", help="name of the file of layers; that of LLVM's CPU if none is given")
    options = parser.parse_args()
    if options.stage == "record":
        record(options.seconds, options.seed, options.machine)
    elif options.stage == "train":
        for template, machines in by_kind(recorded()).items():
            FOLDER.mkdir(exist_ok=True)
            save_posteriors(FOLDER / f"{template}.npz", by_isa(fitted(machines), machines))
            for machine, layers in machines.items():
                configs = sum(len(layer.latency_s) for layer in layers)
                print(f"{template}, {machine}: {len(layers)} layers, {configs} configs")
    elif options.stage == "calibrate":
        calibrate()
    else:
        print("| template | judged on | tasks | first guess | posterior's first | of 3 |\n|---|---|---|---|---|---|")
        others = [layer for path in options.logs for layer in layers_of(path)]
        for template, machines in by_kind(recorded()).items():
            for fold in range(3):
                part = {name: [x for n, x in enumerate(own) if n % 3 != fold] for name, own in machines.items()}
                shipped = by_isa(fitted(part), part)
                for name, own in machines.items():
                    judged = shares(shipped[own[0].isa], own[fold::3])
                    print(f"| {template}, {name} | random layers, fold {fold + 1} | {judged} |", flush=True)
            for name, own in machines.items():
                left = {other: layers for other, layers in machines.items() if other != name}
                print(
                    f"| {template}, {name} | machine left out | {shares(fitted(left)[UNRECORDED], own)} |", flush=True
                )
            for isa, posterior in by_isa(fitted(machines), machines).items():
                print(f"| {template}, {isa} | other models | {shares(posterior, others)} |", flush=True)


if __name__ == "__main__":
    main()
