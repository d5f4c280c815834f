"""One model, built with first guesses and random configs as a run ships them, against ONNX Runtime: in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.kernel_passes import interface
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplify
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules.config import Config
from schedules.lower import BASELINE, loss
from schedules.target import Target
from schedules.vocabulary.errors import ModelError
from tests.shipping import InlineMeasurer, first_guesses, plan_of, random_configs

RTOL, ATOL = 1e-3, 3e-4
"""|ours − theirs| ≤ RTOL·|theirs| + ATOL·rms(theirs): as measuring checks kernels, a little more for their sum."""

LOSSY = 10.0
"""Times that Winograd may be worse; what an artifact has is chosen by the whole model's error (builder/one_lane.py)."""

QUANTISED = 100.0
"""The same for quantised graphs: a sum in another order may be rounded to the next level."""

JITTER = 3e-7
"""Relative change of inputs by which an ill-conditioned graph is known: a few roundings."""

HALF_LOSSY, HALF_JITTER = 20.0, 5e-4
"""The same two for graphs whose numbers have 16 bits: each operator may round, or only the last one of a kernel."""

SHARES = (0.45, 0.4, 0.15)
"""How often a kernel is built with the first guess, a random config or untuned."""

onnxruntime.set_default_logger_severity(4)

Arrays = Sequence[NDArray[Any]]
Feed = dict[str, NDArray[Any]]
Stage = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """A model to examine.

    Attributes:
        feed: its inputs; None for random ones.
        changes: what was changed in a real graph, in order, the graph's name first.
    """

    model: onnx.ModelProto
    feed: Feed | None = None
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What became of a graph.

    Attributes:
        outcome: ``same``, ``refused``, ``mismatch``, ``disputed`` (ONNX's evaluator agrees with us), ``error``,
            ``ill-conditioned``, ``no reference``, ``no graph``; from outside, ``crash``, ``hang`` or ``slow build``.
        stage: where, if something went wrong: ``import`` (the untuned build is wrong as well), ``tuned``, or a line.
        operators: of the graph.
        tuned: kernels that had a first guess or a random config.
        assembled, compiled: kernels built, by how their code was made.
        changes: as of ``Sample``.
    """

    seed: int
    outcome: str
    stage: str = ""
    message: str = ""
    operators: tuple[str, ...] = ()
    tuned: int = 0
    assembled: int = 0
    compiled: int = 0
    changes: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """JSON object."""
        return asdict(self)


def reference(model: onnx.ModelProto, feed: Feed) -> Arrays:
    """ONNX Runtime's outputs without its own rewrites."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def has_other_types(ours: Arrays, theirs: Arrays) -> bool:
    """Whether an output has another shape or type: no rounding explains that."""
    return any(one.shape != two.shape or one.dtype != two.dtype for one, two in zip(ours, theirs, strict=True))


def difference(ours: Arrays, theirs: Arrays, slack: float = 1.0) -> str:
    """What differs between outputs; empty if nothing does."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"output {number} is {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}"
        if mine.dtype.kind != "f":
            bad = np.asarray(mine != other)
        else:
            finite = np.isfinite(other)
            scale = float(np.sqrt(np.mean(np.square(other[finite], dtype=np.float64)))) if finite.any() else 0.0
            if other.dtype == np.float16:  # whose tolerances would be 0
                mine, other = mine.astype(np.float32), other.astype(np.float32)
            with np.errstate(invalid="ignore", over="ignore"):
                far = ~(np.abs(mine - other) <= slack * (RTOL * np.abs(other) + ATOL * scale))
            bad = np.asarray(far & ~((mine == other) | (np.isnan(mine) & np.isnan(other))))
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            return (
                f"output {number}: {int(bad.sum())} of {bad.size} differ, at {place} {mine[place]} not {other[place]}"
            )
    return ""


def drawn_configs(program: Program, target: Target, seed: int) -> dict[str, Config]:
    """Task key → what a run may ship: a first guess, a random config that applies, or the untuned program."""
    choices = (first_guesses(program, target), random_configs(program, target, seed))
    untuned = dict.fromkeys(choices[0], BASELINE)
    shares = np.random.default_rng([11, seed]).choice(3, size=len(untuned), p=SHARES)
    return {key: (*choices, untuned)[share][key] for key, share in zip(untuned, shares, strict=True)}


def examine(sample: Sample, seed: int, stage: Stage, target: Target) -> Found:
    """Import a model, build it with drawn configs and compare; ``stage`` is told what comes next.

    A model that differs is built untuned as well: if that differs too, the import is wrong, else a kernel is.
    """
    model = sample.model
    about = {"operators": tuple(sorted({node.op_type for node in model.graph.node})), "changes": sample.changes}
    with tempfile.TemporaryDirectory(prefix="tune-fuzz-") as name:
        folder = Path(name)
        stage("import")
        path = folder / "model.onnx"
        onnx.save(model, path)
        try:
            feed = sample.feed or dict(random_inputs(interface(model)[0], seed))
            theirs = reference(model, feed)
        except Exception as error:  # whatever ONNX Runtime makes of a graph that the checker likes
            return Found(seed, "no reference", "import", str(error)[:300], **about)
        try:
            program = import_program(simplify(load_model(path)), target)
        except ModelError as error:
            return Found(seed, "refused", "import", str(error), **about)
        configs = drawn_configs(program, target, seed)
        measurer = InlineMeasurer(target, folder)
        slack = _slack(model, configs)
        measured: list[Arrays] = []

        def run(label: str, configs: dict[str, Config]) -> str:
            stage(f"build {label}")
            build_artifact(folder / label, program, plan_of(configs, target), path, measurer)  # type: ignore[arg-type]
            stage(f"run {label}")
            measured.append(InferenceSession(folder / label).run(None, feed))
            return difference(measured[-1], theirs, slack)

        wrong = run("tuned", configs)
        counts = {
            "tuned": sum(config != BASELINE for config in configs.values()),
            "assembled": measurer.assembled,
            "compiled": measurer.compiled,
        }
        if not wrong:
            return Found(seed, "same", **about, **counts)
        if not has_other_types(measured[-1], theirs) and _is_steep(model, feed, theirs, slack, number_of(wrong)):
            return Found(seed, "ill-conditioned", "tuned", wrong, **about, **counts)
        if onnx_agrees(model, feed, measured[-1]):
            return Found(seed, "disputed", "import", wrong, **about, **counts)
        untuned = run("untuned", dict.fromkeys(configs, BASELINE))
        return Found(seed, "mismatch", "import" if untuned else "tuned", untuned or wrong, **about, **counts)


def number_of(message: str) -> int:
    """The output that a message of ``difference`` is about."""
    return int(message.split()[1].rstrip(":"))


def _slack(model: onnx.ModelProto, configs: Mapping[str, Config]) -> float:
    if any("QuantizeLinear" in node.op_type for node in model.graph.node):
        return QUANTISED
    if _has_halves(model):
        return HALF_LOSSY
    return LOSSY if any(loss(config) for config in configs.values()) else 1.0


def _has_halves(model: onnx.ModelProto) -> bool:
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for value in model.graph.input)


def onnx_agrees(model: onnx.ModelProto, feed: Feed, ours: Arrays) -> bool:
    """Whether ONNX's own evaluator computes what we do; it knows not every operator."""
    try:
        theirs = ReferenceEvaluator(model).run(None, feed)
        return not difference(ours, [np.asarray(array) for array in theirs])
    except Exception:  # whatever it raises, it says nothing for us
        return False


def _is_steep(model: onnx.ModelProto, feed: Feed, theirs: Arrays, slack: float, wrong: int) -> bool:
    """Whether output ``wrong`` moves by a tenth of what is allowed when inputs move by a few roundings."""
    jitter = HALF_JITTER if _has_halves(model) else JITTER
    for seed in range(4):
        rng = np.random.default_rng(seed)
        moved = {
            name: (array * (1 + jitter * rng.standard_normal(array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in feed.items()
        }
        if difference(reference(model, moved)[wrong : wrong + 1], theirs[wrong : wrong + 1], 0.1 * slack):
            return True
    return False
