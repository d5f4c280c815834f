"""``tune export``: an artifact as a folder that plain TVM runs, without this program."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import only_part
from autotune.artifact.plain_data import encode
from autotune.artifact.replacement import new_folder
from schedules.vocabulary.errors import ArtifactError

RUNNER = "plain_model.py"


def export(artifact_path: Path, out: Path) -> Path:
    """Write the artifact to the folder ``out`` as ``model.so``, ``weights.npz``, ``program.json`` and a runner.

    Raises:
        ArtifactError: if the artifact cannot be read or needs our own runtime, or ``out`` is not empty or not writable.
    """
    artifact = read_artifact(only_part(artifact_path))
    if len(artifact.steps.lanes) > 1:
        raise ArtifactError(f"{artifact_path} runs on several lanes, which plain TVM cannot; build it with --lanes cpu")
    program = {
        "inputs": encode(artifact.inputs),
        "outputs": encode(artifact.outputs),
        "threads": artifact.target.threads,
        "steps": encode(replace(artifact.steps, weights=())),
    }
    with new_folder(out) as folder:
        shutil.copy(artifact.library, folder / "model.so")
        np.savez(folder / "weights.npz", *artifact.weights)
        (folder / "program.json").write_text(json.dumps(program))
        shutil.copy(Path(__file__).with_name(RUNNER), folder / RUNNER)
    return out
