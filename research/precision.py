"""``python -m research.precision STEP FOLDER MODEL:KIND[:BUDGET[:VARIANT]]…``: precisions against engines.

KIND is one of ``tests.models.quantised.KINDS`` or ``dynamic``; of the model as it is ``fp32``, ``bf16``, ``auto`` or,
where that is a quantised one, ``as_is``. The steps leave files in FOLDER and skip what is there, so that each can run
when the machine has time for it:

    make     MODEL-KIND.onnx, by ONNX Runtime's own preparation and quantiser
    tune     MODEL-KIND.tuned, verified, from one log of the folder
    bench    MODEL-KIND.bench.json: in turn with ONNX Runtime, OpenVINO's default and our fp32 artifact, if there is
             one; and how far our outputs and ONNX Runtime's are from those of the fp32 model
    table    a row of each, as docs/lab: benchmarks has them
    errors   ours and ONNX Runtime's distance from the fp32 model over 200 inputs, and the difference input by input
    layers   every layer alone against ONNX Runtime's, by first guesses of the kernels: a row of each
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import version_converter
from onnxruntime.quantization.shape_inference import quant_pre_process

import autotune
from autotune.artifact.directory import read_artifact
from autotune.validation.bench import write_job
from autotune.validation.bench_process import EngineProcess, wait_until_quiet
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import random_inputs
from research.__main__ import tune
from tests.models.catalog import build
from tests.models.quantised import quantise
from tests.models.quantised_layers import READ, cut_at_quantised, layer_inputs, layer_quanta

PEERS = ("onnxruntime", "openvino-default")
SECOND = ("onnxruntime", "openvino")
"""Where OpenVINO's default does not run a model, as convolutions in s8·s8 on AMX."""
FLOATING = ("fp32", "bf16", "auto", "as_is")
"""Kinds that are the model as it is."""
LEAST_OPSET = 13
"""From here on ONNX has quantisation with a scale by channel."""
SAMPLES = 16
"""Random inputs over which errors are taken."""
PAIRED_SAMPLES = 200
"""Random inputs by which two distances are told apart: the standard error of ResNet-50's is 1 % of the distance."""
RUNS = 10
"""Inferences of one artifact in a round, where artifacts are compared."""
HEADS = (
    *("model", "budget", "ours ms", *(f"{peer} ms" for peer in PEERS), *(f"over {peer}" for peer in PEERS)),
    *("over our fp32", "our error", "onnxruntime's error"),
)
"""Of the table."""


@dataclass(frozen=True)
class Case:
    """One model of one kind, and its files.

    Attributes:
        budget: of ``tune run``.
        variant: the number of threads of ``tune run``, and so of every engine, or what it compiles for instead of this
            machine, such as ``avx2``; empty for neither.
    """

    folder: Path
    model: str
    kind: str
    budget: str = "60s"
    variant: str = ""

    @classmethod
    def of(cls, folder: Path, text: str) -> Case:
        """``MODEL:KIND[:BUDGET[:VARIANT]]``."""
        return cls(folder, *text.split(":"))

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.model}-{self.kind}" + (f"-{self.variant}" if self.variant else "")

    @property
    def flags(self) -> list[str]:
        """Of ``tune run``, for the variant."""
        if not self.variant or self.variant.isdigit():
            return ["--threads", self.variant] if self.variant else []
        return ["--target", json.dumps({"isa": self.variant})]

    @property
    def onnx(self) -> Path:
        """The model as it is tuned."""
        return self.folder / f"{self.model}-{'fp32' if self.kind in FLOATING else self.kind}.onnx"

    @property
    def artifact(self) -> Path:
        """What ``tune`` makes."""
        return self.folder / f"{self.name}.tuned"

    @property
    def kept(self) -> Path:
        """What ``bench`` measured."""
        return self.folder / f"{self.name}.bench.json"


def make(case: Case) -> None:
    """Write the model, and the fp32 one that it is made of."""
    plain = case.folder / f"{case.model}-fp32.onnx"
    if not plain.exists():
        model = build(case.model)
        if model.opset_import[0].version < LEAST_OPSET:
            model = version_converter.convert_version(model, LEAST_OPSET)
        onnx.save(model, plain)
    if not case.onnx.exists():
        with tempfile.TemporaryDirectory() as temporary:
            prepared = Path(temporary) / "prepared.onnx"
            quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
            quantise(onnx.load(prepared), case.kind, case.onnx)


def tuned(case: Case) -> None:
    """Tune and verify."""
    if case.artifact.exists():
        return
    line = ["run", str(case.onnx), "--out", str(case.artifact), "--log", str(case.folder / "log.db"), "--no-peer"]
    line += ["--budget", case.budget, *(["--precision", case.kind] if case.kind in ("bf16", "auto") else [])]
    line += case.flags
    (case.folder / f"{case.name}.run.json").write_text(json.dumps(tune(*line)))


def bench(case: Case, rounds: int) -> None:
    """Time and compare."""
    if case.kept.exists():
        return
    line = ["bench", str(case.artifact), "--model", str(case.onnx), "--rounds", str(rounds), "--against"]
    try:
        result = tune(*line, ",".join(PEERS))
    except subprocess.CalledProcessError:
        result = tune(*line, ",".join(SECOND))
    base = Case(case.folder, case.model, "fp32", variant=case.variant)
    if case.kind != "fp32" and base.artifact.exists():
        result["over_fp32"] = in_turn((base.artifact, case.artifact), rounds)
    result["errors"] = errors(base.onnx, case)
    case.kept.write_text(json.dumps(result))


def in_turn(artifacts: tuple[Path, Path], rounds: int) -> list[float]:
    """Quartiles (25, 50, 75 %) of how many times as long the first takes as the second, round by round in turn."""
    with ExitStack() as stack:
        engines = []
        for path in artifacts:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            artifact = read_artifact(path)
            write_job(folder, None, random_inputs(artifact.inputs, 0), artifact.target.threads, str(path.resolve()))
            engines.append(stack.enter_context(EngineProcess("tune", folder)))
        ratios = []
        for _ in range(rounds):
            taken = []
            for engine in engines:
                wait_until_quiet(engines)
                taken.append(statistics.median(engine.run(RUNS, warmup=3)))
            ratios.append(taken[0] / taken[1])
    return [float(quartile) for quartile in np.percentile(ratios, (25, 50, 75))]


def errors(plain: Path, case: Case) -> dict[str, float]:
    """Distance from the fp32 model's outputs over its outputs, in root mean square: the mean of ``SAMPLES`` inputs."""
    artifact = read_artifact(case.artifact)
    session = autotune.InferenceSession(case.artifact)
    exact, model = onnx.load(plain), onnx.load(case.onnx)
    distances: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
    for seed in range(SAMPLES):
        feed = random_inputs(artifact.inputs, seed)
        wanted = reference_outputs(exact, feed)[1]
        outputs_of = {"ours": session.run(None, feed), "onnxruntime": reference_outputs(model, feed)[1]}
        for name, outputs in outputs_of.items():
            distances[name].append(_distance(wanted, outputs))
    return {name: statistics.fmean(values) for name, values in distances.items()}


def _distance(wanted: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> float:
    one, other = (np.concatenate([array.ravel() for array in arrays]) for arrays in (wanted, outputs))
    return float(np.sqrt(np.mean((one - other) ** 2.0) / np.mean(one**2.0)))


def row(case: Case) -> str:
    """One line of the table; what is not there yet is a dash."""
    if not case.kept.exists():
        return f"| {case.name} | {case.budget} |" + " – |" * (len(HEADS) - 2)
    data = json.loads(case.kept.read_text())
    engines = {engine["name"]: engine for engine in data["engines"]}
    cells = [case.name, case.budget, f"{engines['tune']['p50_ms']:.2f}"]
    peers = PEERS if PEERS[1] in engines else SECOND
    asked = "" if peers == PEERS else ", asked for fp32"
    for peer, more in zip(peers, ("", asked), strict=True):
        cells.append(f"{engines[peer]['p50_ms']:.2f} ({engines[peer]['precision']}{more})")
    for peer in peers:
        low, high = data["speedup_quartiles"][peer]
        cells.append(f"{data['speedup'][peer]:.2f} ({low:.2f}–{high:.2f})")
    over = data.get("over_fp32")
    cells.append(f"{over[1]:.2f} ({over[0]:.2f}–{over[2]:.2f})" if over else "–")
    cells += [f"{data['errors'][name]:.2e}" for name in ("ours", "onnxruntime")]
    return "| " + " | ".join(cells) + " |"


def paired(case: Case) -> str:
    """Means and standard errors of both distances from fp32, and of ours less ONNX Runtime's."""
    base, session = Case(case.folder, case.model, "fp32").onnx, autotune.InferenceSession(case.artifact)
    plain, short = (onnxruntime.InferenceSession(str(path)) for path in (base, case.onnx))
    specs = read_artifact(case.artifact).inputs
    rows = []
    for seed in range(PAIRED_SAMPLES):
        feed = random_inputs(specs, seed)
        wanted = plain.run(None, feed)
        rows.append([_distance(wanted, engine.run(None, feed)) for engine in (session, short)])
    errors_of = np.array(rows)
    columns = [*errors_of.T, errors_of[:, 0] - errors_of[:, 1]]
    cells = [f"{column.mean():.4f} ± {column.std(ddof=1) / len(column) ** 0.5:.4f}" for column in columns]
    return f"| {case.name} | " + " | ".join(cells) + " |"


def layers(case: Case) -> str:
    """The row of a model whose layers are compared one by one."""
    model = onnx.load(case.onnx)
    cut = cut_at_quantised(model)
    with tempfile.TemporaryDirectory() as temporary:
        path, out = Path(temporary) / "layers.onnx", Path(temporary) / "layers.tuned"
        onnx.save(cut, path)
        autotune.tune(path, autotune.Options(out=out, effort="instant", log=case.folder / "log.db"))
        session = autotune.InferenceSession(out)
        specs = [spec for spec in read_artifact(out).inputs if not spec.name.endswith(READ)]
        feed = layer_inputs(model, random_inputs(specs, SAMPLES))
        ours = dict(zip((spec.name for spec in session.get_outputs()), session.run(None, feed), strict=True))
    compared = layer_quanta(cut, feed, ours)
    elements, differing = sum(one.elements for one in compared), sum(one.differing for one in compared)
    worst = max(compared, key=lambda one: one.most)
    beyond = sum(one.most > 1 for one in compared)
    share = 100 * differing / elements
    return f"| {case.name} | {len(compared)} | {share:.4f} % | {worst.most} ({worst.name}) | {beyond} |"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m research.precision", description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("make", "tune", "bench", "table", "errors", "layers"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+", metavar="MODEL:KIND[:BUDGET[:VARIANT]]")
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    cases = [Case.of(chosen.folder, text) for text in chosen.cases]
    if chosen.step == "table":
        print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
        print("\n".join(map(row, cases)))
        return
    if chosen.step == "layers":
        print(
            "| model | layers | numbers that differ | most, in quanta | layers beyond one quantum |\n"
            + "|---" * 5
            + "|"
        )
    if chosen.step == "errors":
        print("| model | ours | ONNX Runtime | ours less ONNX Runtime's |\n" + "|---" * 4 + "|")
    for case in cases:
        if chosen.step in ("layers", "errors"):
            print({"layers": layers, "errors": paired}[chosen.step](case), flush=True)
        elif chosen.step == "bench":
            bench(case, chosen.rounds)
        else:
            {"make": make, "tune": tuned}[chosen.step](case)


if __name__ == "__main__":
    main()
