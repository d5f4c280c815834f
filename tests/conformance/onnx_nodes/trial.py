"""One case through the product: import, build, load, run, compare. Runs in a process of its own."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.frame.frame import element
from autotune.frame.noise import draw, noise_of
from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.runtime.session import InferenceSession
from autotune.validation.reference_runs import reference_outputs
from schedules.lower import BASELINE
from schedules.vocabulary.errors import AutotuneError, ModelError
from tests.conformance.onnx_nodes.cases import Case
from tests.shipping import InlineMeasurer, first_guesses, plan_of, random_configs

NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
"""Cases whose expected outputs are farther from the truth than the suite's absolute tolerance: zeros that the fast
transform that made them left at 2e-7."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        kind: ``pass``, ``refused`` (by a ModelError that names an operator of the model), ``unnamed`` (refused
            without), ``wrong``, ``crash`` or ``hang``.
        message: of the refusal or failure.
        tuned: kernels that ran with a first guess, or with a random config.
        assembled, compiled: kernels built, by how their code was made.
    """

    case: str
    operator: str
    kind: str
    message: str = ""
    constants: bool = False
    tuned: int = 0
    assembled: int = 0
    compiled: int = 0
    seconds: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """JSON object; keyword arguments that make it again."""
        return asdict(self)


class Kernels(NamedTuple):
    """Counts of an artifact's kernels, as of ``Outcome``."""

    tuned: int = 0
    assembled: int = 0
    compiled: int = 0


NONE = Kernels()


def attempt(case: Case, tuned: bool, seed: int = 0) -> Outcome:
    """Run ``case``; whatever goes wrong is its outcome."""

    def outcome(kind: str, message: str = "", kernels: Kernels = NONE) -> Outcome:
        return Outcome(case.name, case.operator, kind, message, bool(case.constants), *kernels)

    try:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            outputs, expected, kernels = run(case, Path(folder), tuned, seed)
    except ModelError as error:
        return outcome("refused" if names_operator(str(error), case.model) else "unnamed", str(error))
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        kind = "unnamed" if isinstance(error, AutotuneError) else "crash"
        return outcome(kind, f"{type(error).__name__} at {where}: {' | '.join([*lines[:1], *lines[-1:]])}"[:600])
    message = mismatch(replace(case, outputs=expected), outputs)
    return outcome("wrong" if message else "pass", message, kernels)


def names_operator(text: str, model: onnx.ModelProto) -> bool:
    """Whether ``text`` names an operator, as a word."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
    return any(node.op_type in words for node in model.graph.node) or any(
        onnx.defs.has(word) for word in words if word[:1].isupper()
    )


def run(case: Case, folder: Path, tuned: bool, seed: int) -> tuple[list[Any], list[Any], Kernels]:
    """Outputs of ``case``, built with first guesses or, if ``tuned``, with random configs; those expected; its kernels.

    A case that draws random numbers expects those of NumPy's generator of one day. What it computes of given ones is
    compared with ONNX Runtime.
    """
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    target = host_target(1)
    measurer = InlineMeasurer(target, folder)
    model = load_model(path, element_shapes(case))
    program = import_program(simplify(model), target)
    configs = random_configs(program, target, seed) if tuned else first_guesses(program, target)
    out = folder / "out"
    build_artifact(out, program, plan_of(configs, target), path, measurer)  # type: ignore[arg-type]
    chosen = sum(config != BASELINE for config in configs.values())
    kernels = Kernels(chosen, measurer.assembled, measurer.compiled)
    session = InferenceSession(out, threads=1)
    drawn = session.get_overridable_initializers()
    if not drawn:
        return session.run(None, case.inputs), list(case.outputs), kernels
    rng = np.random.default_rng(seed)
    kinds = {arg.name: noise_of(arg.name) for arg in drawn}
    noise = {arg.name: draw(kinds[arg.name].kind, rng, arg.shape, arg.dtype) for arg in drawn}  # type: ignore[union-attr]
    feed = {**case.inputs, **noise}
    return session.run(None, feed), reference_outputs(model, feed)[1], kernels


def element_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """What ``--input`` would say of a model with sequences: shapes of elements and tensors, or that there are none."""
    absent: dict[str, tuple[int, ...]] = {name: (0,) for name, value in case.inputs.items() if is_absent(value)}
    lists = {name: value for name, value in case.inputs.items() if isinstance(value, list)}
    shapes = {element(name, k): np.shape(item) for name, value in lists.items() for k, item in enumerate(value)}
    rest = {name: np.shape(value) for name, value in case.inputs.items() if lists and isinstance(value, np.ndarray)}
    return {**shapes, **rest, **absent}


def is_absent(value: Any) -> bool:
    """Whether an input is a sequence without elements or an optional value that holds nothing."""
    if isinstance(value, np.ndarray):
        return value.dtype == object and value.shape == () and value[()] is None
    return value is None or value == []


def mismatch(case: Case, outputs: Sequence[Any]) -> str:
    """What differs from the expected outputs; empty if nothing does. The suite's own comparison."""
    if len(outputs) != len(case.outputs):
        return f"{len(outputs)} outputs instead of {len(case.outputs)}"
    pairs = list(zip(outputs, case.outputs, strict=True))
    for ours, theirs in pairs:
        if isinstance(ours, list) != isinstance(theirs, list) or (isinstance(ours, list) and len(ours) != len(theirs)):
            return f"{type(ours).__name__} instead of {type(theirs).__name__}, or of another length"
    flat = [
        compared for pair in pairs for compared in (zip(*pair, strict=True) if isinstance(pair[0], list) else [pair])
    ]
    for index, (ours, theirs) in enumerate(flat):
        theirs = np.asarray(theirs)
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {index} is {ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
        if theirs.dtype == object:
            if ours.tolist() != theirs.tolist():
                return f"output {index}: {ours.tolist()} instead of {theirs.tolist()}"[:500]
            continue
        rtol = case.rtol
        if theirs.dtype == np.float16:
            rtol = max(rtol, 2.0**-9)  # two roundings, as the suite itself grants bfloat16
        if theirs.dtype.name == "bfloat16":
            rtol, ours, theirs = max(rtol, 2.0**-6), ours.astype(np.float32), theirs.astype(np.float32)
        try:
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=NOISE.get(case.name, case.atol))
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"output {index}: {' | '.join(lines[1:6])}"[:500]
    return ""
