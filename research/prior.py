"""``python -m research.prior STAGE``: make the prior that ships (``costmodels/template_prior.py``) and judge it.

    record --seconds S   tune networks of random layers on this machine, and add what was measured to
                         research/layers/MACHINE.npz; other seeds than before, on an otherwise idle machine
    train                fit the priors of all machines recorded, and write autotune/builder/priors/*.npz
    judge LOG…           what the prior likes, among the configs that other models' logs measured, beside the first
                         guess of the template; and the same for random layers left out of the fit

A table's share is the best measured latency over that of the config chosen, as a geometric mean over tasks and weighted
by their time; *of 3* is the fastest of the three that the prior likes best.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import xgboost

from autotune.builder.shipped_priors import FOLDER, save_prior
from autotune.host.machine import host_target
from costmodels.cost_model import Floats
from costmodels.template_prior import FARTHEST, QuadraticForm, TemplatePrior, Trees, tree_features
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

SLOW = 1.5
"""ln of the ratio to the best from which all are equally slow: who is chosen does not depend on them."""

FAST = 1.0
"""A config's weight in the fits is 1 / (this + ln of its ratio to the best)."""

RIDGE = 100.0
"""Penalty of the quadratic form. From 10 to 3,000 the shares below differ by less than 1 %."""

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
    def slowness(self) -> Floats:
        """(n,) ln of the ratio to the best, at most ``SLOW``."""
        return np.minimum(np.log(self.latency_s / self.latency_s.min()), SLOW)

    @property
    def kind(self) -> tuple[str, str, tuple[str, ...], int]:
        """Layers of one kind can be learned from together."""
        return self.space, self.isa, self.names, len(self.extents)


def layers_of(log_path: Path) -> list[Layer]:
    """The tasks of a log whose templates have a prior."""
    log = open_log(log_path)
    targets, found = log.targets(), []
    for key in log.counts():
        program = log.workload(key.task)
        if program is None or key.space.split("/")[0] not in TEMPLATES:
            continue
        space = lower.claim(lower.load_program(program), targets[key.target]).space
        timed = [record for record in log.records(key) if record.measurement.ok and space.contains(record.config)]
        if len(timed) >= FEWEST:
            found.append(_layer(space, targets[key.target].isa, [(r.config, r.measurement.latency_s) for r in timed]))
    log.close()
    return found


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
        facts, latency_s, start, found = json.loads(str(file["facts"])), file["latency_s"], 0, []
        for index, fact in enumerate(facts):
            timed = latency_s[start : start + fact["n"]].astype(np.float64)
            table = file[f"features{index}"].astype(np.float64)
            names, extents = tuple(fact["names"]), tuple(fact["extents"])
            found.append(Layer(fact["space"], fact["isa"], names, extents, table, timed, fact["first"]))
            start += fact["n"]
    return found


def fitted(layers: Sequence[Layer]) -> TemplatePrior:
    """The prior of layers of one kind."""
    features = np.concatenate([layer.features for layer in layers])
    slowness = [layer.slowness for layer in layers]
    weights = [1 / (FAST + values) for values in slowness]
    mean, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)
    blank = QuadraticForm(mean, scale, mean * 0, np.zeros((len(mean), len(mean))))
    form = _quadratic(blank, layers, slowness, weights)
    left = [
        _centred(values, weight) - _centred(form.values(layer.features), weight)
        for layer, values, weight in zip(layers, slowness, weights, strict=True)
    ]
    table = np.concatenate([tree_features(layer.features, layer.extents) for layer in layers])
    data = xgboost.DMatrix(table, np.concatenate(left), weight=np.concatenate(weights))
    space, isa, names, extents = layers[0].kind
    return TemplatePrior(space, isa, names, extents, form, heaps(xgboost.train(TREES, data, ROUNDS)))


def heaps(booster: xgboost.Booster) -> Trees:
    """The booster's trees in arrays; its base score is left out, as a constant of all configs."""
    nodes = 2 ** (int(str(TREES["max_depth"])) + 1) - 1
    dumped = [json.loads(text) for text in booster.get_dump(dump_format="json")]
    made = Trees(
        np.zeros((len(dumped), nodes), np.int16),
        np.full((len(dumped), nodes), np.inf, np.float32),
        np.zeros((len(dumped), nodes), np.float32),
    )

    def fill(tree: int, place: int, node: dict[str, object]) -> None:
        if place >= nodes:
            return
        if "leaf" in node:
            made.value[tree, place] = node["leaf"]
            fill(tree, 2 * place + 1, node)
            return
        made.feature[tree, place] = int(str(node["split"])[1:])
        made.threshold[tree, place] = node["split_condition"]
        children = {child["nodeid"]: child for child in node["children"]}  # type: ignore[attr-defined]
        fill(tree, 2 * place + 1, children[node["yes"]])
        fill(tree, 2 * place + 2, children[node["no"]])

    for number, tree in enumerate(dumped):
        fill(number, 0, tree)
    return made


def _centred(values: Floats, weight: Floats) -> Floats:
    """A layer's values less their mean: a prior orders the configs of one task, whatever its level."""
    return np.asarray(values - np.average(values, weights=weight))


def _quadratic(
    blank: QuadraticForm, layers: Sequence[Layer], slowness: Sequence[Floats], weights: Sequence[Floats]
) -> QuadraticForm:
    """The form that fits best by ridge regression, layers centred."""
    left, right = np.triu_indices(len(blank.mean))

    def terms(layer: Layer) -> Floats:
        z = np.clip((layer.features - blank.mean) / blank.scale, -FARTHEST, FARTHEST)
        return np.concatenate([z, z[:, left] * z[:, right]], axis=1)

    tables = [terms(layer) for layer in layers]
    rows = np.concatenate([table - table.mean(axis=0) for table in tables])
    wanted = np.concatenate([values - values.mean() for values in slowness])
    weight = np.concatenate(weights)[:, None]
    solved = np.linalg.solve(rows.T @ (rows * weight) + RIDGE * np.eye(rows.shape[1]), rows.T @ (wanted * weight[:, 0]))
    products = np.zeros_like(blank.products)
    products[left, right] = solved[len(blank.mean) :]
    return QuadraticForm(blank.mean, blank.scale, solved[: len(blank.mean)], products)


def by_kind(layers: Iterable[Layer]) -> dict[tuple[str, str], list[Layer]]:
    """Template and instruction set → the layers of the most frequent kind."""
    found: dict[tuple[str, str], list[Layer]] = {}
    for layer in layers:
        found.setdefault((layer.space.split("/")[0], layer.isa), []).append(layer)
    most = {key: Counter(layer.kind for layer in own).most_common(1)[0][0] for key, own in sorted(found.items())}
    return {key: [layer for layer in found[key] if layer.kind == kind] for key, kind in most.items()}


def shares(prior: TemplatePrior, layers: Iterable[Layer]) -> str:
    """Cells of a table: layers, then the shares of the first guess, of the prior's favourite and of its best of 3."""
    rows = []
    for layer in layers:
        if layer.first is None or layer.kind != (prior.space, prior.isa, prior.names, prior.extents):
            continue
        order = np.argsort(prior.slowness(layer.features, layer.extents), kind="stable")
        took = layer.latency_s
        rows.append((took.min(), took[layer.first], took[order[0]], took[order[:3]].min()))
    if not rows:
        return "0 | | | "
    table = np.array(rows)
    ratios = table[:, :1] / table[:, 1:]
    means = np.exp(np.log(ratios).mean(axis=0))
    weighted = table[:, 0].sum() / table[:, 1:].sum(axis=0)
    return f"{len(rows)} | " + " | ".join(f"{a:.1%}, {b:.1%}" for a, b in zip(means, weighted, strict=True))


def record(seconds: float, seed: int) -> None:
    """Tune networks of random layers from an empty log until the time is over, and add them to this machine's file."""
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
    layers, file = layers_of(log), LAYERS / f"{host_target().mcpu}.npz"
    save_layers(file, [*(load_layers(file) if file.exists() else []), *layers])
    print(f"{len(layers)} layers, {sum(len(layer.latency_s) for layer in layers)} configs")


def recorded() -> list[Layer]:
    """All machines' layers."""
    return [layer for path in sorted(LAYERS.glob("*.npz")) for layer in load_layers(path)]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.prior", description=__doc__)
    parser.add_argument("stage", choices=("record", "train", "judge"))
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first network to record")
    options = parser.parse_args()
    if options.stage == "record":
        record(options.seconds, options.seed)
    elif options.stage == "train":
        for (template, isa), layers in by_kind(recorded()).items():
            FOLDER.mkdir(exist_ok=True)
            save_prior(FOLDER / f"{template}-{isa}.npz", fitted(layers))
            print(f"{template}, {isa}: {len(layers)} layers, {sum(len(layer.latency_s) for layer in layers)} configs")
    else:
        print("| template | judged on | tasks | first guess | prior's first | of 3 |\n|---|---|---|---|---|---|")
        for (template, isa), layers in by_kind(recorded()).items():
            for fold in range(3):
                prior = fitted([layer for number, layer in enumerate(layers) if number % 3 != fold])
                print(f"| {template}, {isa} | random layers, fold {fold + 1} | {shares(prior, layers[fold::3])} |")
            others = [layer for path in options.logs for layer in layers_of(path)]
            print(f"| {template}, {isa} | other models | {shares(fitted(layers), others)} |", flush=True)


if __name__ == "__main__":
    main()
