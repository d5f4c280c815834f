"""Cases through the product: imported, built as they ship or otherwise, and compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplified
from autotune.runtime.session import InferenceSession
from schedules import lower as shipped
from schedules.config import Config
from schedules.lower import BASELINE, load_program
from schedules.target import Target
from schedules.vocabulary.errors import ScheduleError
from tests.conformance.special_values.inputs import LARGE, LARGEST, PATTERNS, feed
from tests.conformance.special_values.operators import Cases, Rule
from tests.shipping import InlineMeasurer, plan_of

RTOL, ATOL = 1e-3, 3e-4
"""|ours − theirs| ≤ RTOL·|theirs| + ATOL·rms(theirs)."""

DRAWS = 8
"""Random configs tried per kernel until one is written as assembly."""

BY_ROWS = ("TopK", "Hardmax")
"""Cases whose whole row depends on one element."""

Array = NDArray[Any]

onnxruntime.set_default_logger_severity(4)


def random_configs(program: Program, target: Target, seed: int) -> dict[str, Config]:
    """Task key → a random config, one that is written as assembly if any of ``DRAWS`` is."""
    rng = np.random.default_rng(seed)
    chosen = {}
    for task in program.tasks:
        chosen[task.key] = BASELINE
        space, func = program.spaces[task.key], load_program(program.programs[task.key])
        for config in space.sample(DRAWS, rng) if space.knobs else ():
            try:
                shipped.lower(func, config, target)
            except ScheduleError:
                continue
            chosen[task.key] = config
            if shipped.assembly(func, config, target, "kernel"):
                break
    return chosen


class Trial:
    """One model, imported once and built in several ways.

    Args:
        folder: for the model, kernels and artifacts.
    """

    def __init__(self, model: onnx.ModelProto, target: Target, folder: Path) -> None:
        self._target, self._folder, self._path = target, folder, folder / "model.onnx"
        onnx.save(model, self._path)
        self._reference = onnxruntime.InferenceSession(str(self._path), providers=["CPUExecutionProvider"])
        self._program = import_program(simplified(load_model(self._path), target), target)
        self._built = 0

    def reference(self, inputs: Mapping[str, Array]) -> list[Array]:
        """ONNX Runtime's outputs."""
        return list(self._reference.run(None, dict(inputs)))

    def configs(self, seed: int | None) -> dict[str, Config]:
        """Random configs; those of the untuned build where there is no seed."""
        if seed is None:
            return {task.key: BASELINE for task in self._program.tasks}
        return random_configs(self._program, self._target, seed)

    def build(self, configs: Mapping[str, Config], assembled: bool) -> InferenceSession:
        """A session of these kernels; ``assembled`` as they ship, else each compiled."""
        self._built += 1
        kernels, out = self._folder / f"kernels{self._built}", self._folder / f"{self._built}.tuned"
        kernels.mkdir()
        measurer: Any = InlineMeasurer(self._target, kernels, assembled)
        plan = plan_of(configs, self._target)
        build_artifact(out, self._program, plan, self._path, measurer)
        return InferenceSession(out)


def differences(trial: Trial, cases: Cases, session: InferenceSession, lossy: bool, seed: int = 0) -> list[str]:
    """What differs from ONNX Runtime but for the rules of a case; ``lossy`` where a kernel may be Winograd's."""
    complaints = []
    for pattern in PATTERNS:
        inputs = feed(pattern, cases.shapes, seed)
        theirs, ours = trial.reference(inputs), session.run(None, inputs)
        touched = _touched(trial, cases, inputs, np.isnan)
        lost = _touched(trial, cases, inputs, _is_huge) if pattern in LARGE else touched
        for place, name in enumerate(cases.outputs.values()):
            rule = cases.rules[name] | (Rule.MORE_NAN | Rule.SMALL if lossy and "Conv" in name else Rule.NONE)
            if Rule.FINITE in rule and not all(np.isfinite(array).all() for array in inputs.values()):
                continue
            if Rule.SMALL in rule and pattern in LARGE:
                continue
            wrong = unequal(ours[place], theirs[place])
            wrong &= ~allowed(ours[place], theirs[place], rule, pattern in LARGE, touched[place])
            if Rule.OVERFLOW in rule and pattern in LARGE:
                wrong &= ~(lost[place] & _are_near(ours[place], theirs[place], inputs))
            if wrong.any():
                first = tuple(int(i) for i in np.argwhere(wrong)[0])
                values = f"{ours[place][first]} instead of {theirs[place][first]}"
                complaints.append(f"{name}, {pattern}: {int(wrong.sum())} of {wrong.size}, at {first} {values}")
    return complaints


def unequal(ours: Array, theirs: Array) -> Array:
    """Where two outputs differ: NaN, infinities with their signs, and numbers beyond the tolerance."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if ours.dtype.kind != "f":
        return np.asarray(ours != theirs)
    finite = np.isfinite(theirs)
    scale = float(np.sqrt(np.mean(np.square(theirs[finite], dtype=np.float64)))) if finite.any() else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(ours - theirs) <= RTOL * np.abs(theirs) + ATOL * scale
    return ~(np.where(finite, near, False) | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))


def allowed(ours: Array, theirs: Array, rule: Rule, large: bool, touched: Array) -> Array:
    """Where ``rule`` allows a difference; ``large`` where numbers are near the largest."""
    if ours.dtype.kind != "f":
        return touched if Rule.ORDER in rule else np.zeros(ours.shape, bool)
    allowance = np.zeros(ours.shape, bool)
    if Rule.OVERFLOW in rule and large:
        allowance |= ~(np.isfinite(ours) & np.isfinite(theirs))
    if Rule.MORE_NAN in rule:
        allowance |= np.isnan(ours)
    if Rule.LESS_NAN in rule:
        allowance |= np.isnan(theirs)
    if Rule.ORDER in rule:
        allowance |= touched | ((ours <= -LARGEST) & (theirs <= -LARGEST))
    return allowance


HUGE = 1e30
"""An ordinary number that is added to such a number is lost."""

ROUNDING = 1e-5
"""Allowed error of a sum in which two huge numbers cancel, as a share of the largest."""


def _is_huge(array: Array) -> Array:
    return np.isfinite(array) & (np.abs(array) >= HUGE)


def _are_near(ours: Array, theirs: Array, inputs: Mapping[str, Array]) -> Array:
    """Whether two outputs differ by roundings of the largest input, as 3e38 + 2 − 3e38 does in another order."""
    largest = max(float(np.max(np.abs(array), where=np.isfinite(array), initial=0)) for array in inputs.values())
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(ours - theirs) <= ROUNDING * largest)


def _touched(trial: Trial, cases: Cases, inputs: Mapping[str, Array], special: Callable[[Array], Array]) -> list[Array]:
    """Return where outputs depend on a ``special`` element: they differ if it is large or small among ordinary ones."""
    rng = np.random.default_rng(0)

    def outputs(sign: int) -> list[Array]:
        return trial.reference({name: np.where(special(a), sign * far[name], near[name]) for name, a in inputs.items()})

    near = {name: rng.standard_normal(array.shape, np.float32) for name, array in inputs.items()}
    far = {name: rng.uniform(1e3, 2e3, array.shape).astype(np.float32) for name, array in inputs.items()}
    if not any(special(array).any() for array in inputs.values()):
        far = near
    touched = []
    for name, high, low in zip(cases.outputs.values(), outputs(1), outputs(-1 if far is not near else 1), strict=True):
        differ = np.asarray(high != low)
        touched.append(
            np.broadcast_to(differ.any(-1, keepdims=True), differ.shape) if name.startswith(BY_ROWS) else differ
        )
    return touched
