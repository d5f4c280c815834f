"""A plan for a CPU → an artifact directory: compile the kernels, link them, write everything."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import read_artifact, write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.manifest import sha256
from autotune.artifact.plan import Plan
from autotune.backends.cpu.linking import (
    choices_of,
    compile_kernels,
    concats_of,
    link_kernels,
    workspaces_in,
)
from autotune.graph.flattening import flatten
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from schedules.vocabulary.errors import ArtifactError

logger = logging.getLogger(__name__)


def build_artifact(out: Path, program: Program, plan: Plan, model_path: Path, measurer: MeasurementBackend) -> bool:
    """Write the artifact of ``plan`` to ``out``, unless an undamaged artifact of this program and plan is there.

    Args:
        program: as imported.
        model_path: the ONNX file; its name and hash are recorded.
        measurer: compiles the kernels.

    Returns:
        Whether anything was written.

    Raises:
        ArtifactError: if ``out`` cannot be written, or exists and is not an artifact.
        MeasureError: if a kernel does not compile.
        ModelError: if the program is not a list of kernel calls.
    """
    if is_built(out, program, plan):
        return False
    provenance: dict[str, Any] = {"model": model_path.name, "sha256": sha256(model_path)}
    ready = apply_plan(program, plan)
    kernels = compile_kernels(program, plan, measurer)
    steps = flatten(ready, concats_of(program), workspaces_in(kernels, plan.target.threads), choices_of(program))
    used = {call.symbol for call in steps.calls}
    objects = {symbol: path for symbol, path in kernels.items() if symbol in used}
    link = partial(link_kernels, objects, architecture=plan.target.architecture)
    ready = replace(ready, weights=steps.weights)
    write_artifact(out, ready, plan, steps, identity(program, plan), provenance, link)
    return True


def is_built(out: Path, program: Program, plan: Plan) -> bool:
    """Return whether the artifact at ``out`` was built from ``program`` and ``plan`` and is undamaged."""
    try:
        return read_artifact(out).identity == identity(program, plan)
    except ArtifactError as error:
        logger.debug("%s has to be built: %s", out, error)
        return False
