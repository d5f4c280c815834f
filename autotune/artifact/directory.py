"""An artifact of kernels: written whole or not at all, and checked before it is trusted.

    manifest.json   see ``manifest.py``
    plan.json       the decisions
    steps.json      the kernel calls in order and where every tensor lies
    model.so        the kernels and the program that calls them; model-1t.so and so on are for lanes of fewer threads
    weights.bin     packed weights (``weights_file.py``)
    tasks.json.gz   the tasks and their untuned programs, to look inside (autotune/report/inspect_kernels.py); not
                    needed to run
    device-2.1/ …   parts: artifacts of the subgraphs that a device runs, where a model was placed on a CPU and a GPU
    history.json.gz, bench.json
                    how it was tuned (autotune/tuning/run_history.py) and how it compares (``tune bench``), for ``tune
                    report``; attached later

No pickles: reading an artifact runs nothing but its compiled code.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from autotune.artifact.held_files import HeldFile
from autotune.artifact.manifest import (
    CACHES,
    INTERFACE,
    KERNELS,
    MANIFEST,
    WEIGHTS,
    check_file,
    check_files,
    damage_reported,
    digest_of,
    kind_of,
    read_manifest,
    write_manifest,
)
from autotune.artifact.plain_data import decode, encode
from autotune.artifact.plan import Plan
from autotune.artifact.replacement import new_artifact
from autotune.artifact.weights_file import read_weights, write_weights
from autotune.frame.frame import Frame
from autotune.graph.steps import LiveSizes, Steps
from autotune.interface import Cache, Interface, TensorSpec
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.bounded import GZIP, parsed_json, unpacked
from schedules.vocabulary.errors import ArtifactError

if TYPE_CHECKING:  # loads ONNX and the importer, which running an artifact does not need
    from autotune.importer.program import Program

MOST_TASKS_BYTES = 1 << 30
"""Most bytes that the tasks and programs of an artifact may unpack to; large models have some megabytes."""

Weights = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Artifact:
    """A checked artifact of kernels, opened.

    Attributes:
        inputs, outputs: of the kernels.
        identity: hash of what was built, see ``identity.py``.
        frame: what a session does around the kernels; None where that is nothing.
        caches: that kernels write in place (``autotune/runtime/generation_executor.py``).
        cpu: features of a CPU that the code may use, by the Linux kernel's names.
        source: what it was opened from.
        live: what of it may be left out; of a part for one of several sets of shapes.
        interface: the model's, where it answers other batches too, in several runs; None where it does not.
    """

    path: Path
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: Weights
    steps: Steps
    identity: str
    provenance: dict[str, Any]
    frame: Frame | None = None
    caches: tuple[Cache, ...] = ()
    cpu: tuple[str, ...] = ()
    source: Source | None = None
    live: LiveSizes | None = None
    interface: Interface | None = None

    @cached_property
    def plan(self) -> Plan:
        """The decisions; read when they are first asked for, which running does not.

        Raises:
            ArtifactError: if the artifact was replaced since it was opened.
        """
        if self.source is not None:
            with damage_reported(self.path / MANIFEST):
                check_file(self.path / "plan.json", self.source.manifest["sha256"]["plan.json"])
        return Plan.from_json((self.path / "plan.json").read_text())

    @property
    def library(self) -> Path:
        """The shared library."""
        return self.path / "model.so"

    @property
    def precision(self) -> str:
        """Which products read bf16 operands, as ``options.Precision`` has it."""
        return str(self.provenance.get("precision", "fp32"))

    @property
    def device_parts(self) -> dict[str, Path]:
        """Subgraph → the artifact of what a device runs of the model (``autotune/tuning/coupled.py``)."""
        used = ((group, self.steps.lanes[group.lane]) for group in self.steps.groups)
        names = [group.name for group, lane in used if lane.device and not lane.copies]
        return {name: self.path / device_folder(name) for name in names}

    def place_of(self, library: Path) -> Path | None:
        """Return where one of its libraries lies even after the artifact was replaced; None for its own path."""
        held = None if self.source is None else self.source.libraries.get(library.name)
        return None if held is None else held.place

    def check_held(self, library: Path) -> None:
        """Check that a library that was loaded by its path is that of this artifact.

        Raises:
            ArtifactError: if the artifact was replaced since it was opened.
        """
        held = None if self.source is None else self.source.libraries.get(library.name)
        if held is not None and not held.is_there():
            raise ArtifactError(f"{self.path} was replaced since it was opened; call session.reload()")

    def open_device_part(self, name: str) -> Artifact:
        """Open what a device runs of the subgraph ``name``.

        Raises:
            ArtifactError: if a file is missing or was changed, or the part was replaced since this artifact was opened.
        """
        part = read_artifact(self.device_parts[name])
        built = () if self.source is None else self.source.manifest["parts"]
        if any(entry["path"] == part.path.name and entry["identity"] != part.identity for entry in built):
            raise ArtifactError(f"{self.path} was replaced since it was opened; call session.reload()")
        return part

    @property
    def lane_libraries(self) -> dict[int, Path]:
        """Threads of a lane → the library with kernels built for so many, where that is not ``library``."""
        threads = {lane.threads for lane in self.steps.lanes if not lane.device}
        return {count: self.path / lane_library(count) for count in sorted(threads - {self.target.threads})}


@dataclass(frozen=True)
class Source:
    """The data that an artifact of kernels is opened from, except its weights.

    Attributes:
        steps: the text of ``steps.json``.
        libraries: file name → the library, where it is opened later, when the artifact may have been replaced.
    """

    path: Path
    manifest: Mapping[str, Any]
    steps: str
    libraries: Mapping[str, HeldFile] = field(default_factory=dict)

    def open(self, weights: Weights) -> Artifact:
        """The artifact.

        Raises:
            ArtifactError: if the manifest or the steps are damaged.
        """
        data = self.manifest
        with damage_reported(self.path / MANIFEST):
            steps = parsed_json(self.steps)
            if steps is None:  # TVM's virtual machine ran it
                raise ArtifactError(f"{self.path} was built by an older version; renew it with 'tune build MODEL'")
            return Artifact(
                self.path,
                decode(Target, data["target"]),
                decode(tuple[TensorSpec, ...], data["inputs"]),
                decode(tuple[TensorSpec, ...], data["outputs"]),
                weights,
                decode(Steps, steps),
                str(data["identity"]),
                dict(data["provenance"]),
                Frame.from_data(data["frame"]) if data.get("frame") else None,
                decode(tuple[Cache, ...], data.get("caches", [])),
                decode(tuple[str, ...], data["cpu"]),
                self,
                interface=Interface.from_data(data[INTERFACE]) if data.get(INTERFACE) else None,
            )


def lane_library(threads: int) -> str:
    """File name of the library for lanes of ``threads`` threads."""
    return f"model-{threads}t.so"


def device_folder(name: str) -> str:
    """Folder of the artifact of a subgraph that a device runs."""
    return f"device-{name}"


def write_artifact(
    out: Path,
    program: Program,
    plan: Plan,
    steps: Steps,
    digest: str,
    provenance: Mapping[str, Any],
    build: Callable[[Path], None],
) -> None:
    """Build into a temporary folder beside ``out`` and put that in its place with one rename.

    Args:
        program: with weights as the plan's kernels want them.
        steps: the program as flat steps.
        digest: ``identity`` of the program as imported, and the plan.
        build: writes the shared library to the path it is given; libraries of lanes and folders of devices beside it.

    Raises:
        ArtifactError: if the folder cannot be written, or ``out`` exists and is not an artifact.
    """
    from schedules.templates.instructions.llvm_target import code_flags  # loads TVM, which running does without

    with new_artifact(out) as folder:
        build(folder / "model.so")
        (folder / "plan.json").write_text(plan.to_json())
        (folder / "tasks.json.gz").write_bytes(_packed_tasks(program))
        (folder / "steps.json").write_text(json.dumps(encode(replace(steps, weights=()))))
        entries = write_weights(folder / WEIGHTS, program.weights)
        places = sorted(folder.iterdir())
        fields = {
            "sha256": {place.name: digest_of(place) for place in places if place.is_file()},
            "identity": digest,
            "target": encode(plan.target),
            "cpu": code_flags(plan.target),
            "inputs": encode(program.inputs),
            "outputs": encode(program.outputs),
            "frame": None if program.frame is None else program.frame.to_data(),
            "caches": encode(program.caches),
            "parts": [kernels_part(place) for place in places if place.is_dir()],
            "weights": entries,
            "provenance": {
                "precision": str(program.precision),
                "products": program.products,
                **({CACHES: len(program.caches)} if program.caches else {}),
                **provenance,
            },
        }
        write_manifest(folder, KERNELS, fields)


def kernels_part(path: Path) -> dict[str, Any]:
    """The entry of the artifact at ``path`` in the manifest of the artifact that it is a part of."""
    return {"path": path.name, "kind": KERNELS, "identity": read_manifest(path, (KERNELS,))["identity"]}


def _packed_tasks(program: Program) -> bytes:
    data = {"tasks": encode(program.tasks), "programs": program.programs}
    return gzip.compress(json.dumps(data).encode(), mtime=0)  # no time: equal plans build equal files


def read_tasks(path: Path) -> tuple[tuple[Task, ...], dict[str, str]]:
    """The tasks of the artifact at ``path``, most work first, and their programs by key (``schedules.lower``).

    Raises:
        ArtifactError: if they cannot be read.
    """
    with damage_reported(path / "tasks.json.gz"):
        data = parsed_json(unpacked((path / "tasks.json.gz").read_bytes(), GZIP, MOST_TASKS_BYTES))
        return decode(tuple[Task, ...], data["tasks"]), dict(data["programs"])


def read_artifact(path: Path) -> Artifact:
    """Open and check an artifact of kernels.

    Raises:
        ArtifactError: if a file is missing or changed.
    """
    data = read_manifest(path, (KERNELS,))
    with damage_reported(path / MANIFEST):
        weights = None if (path / WEIGHTS).exists() else _shared_weights(path)
        check_files(path, data, (WEIGHTS,))
        source = Source(path, data, (path / "steps.json").read_text())
        if weights is None:
            weights = read_weights(path / WEIGHTS, data["weights"], data["sha256"][WEIGHTS])
        return source.open(weights)


def hold_part(path: Path) -> Source:
    """Hold what the part at ``path`` is opened from, whose files were checked.

    Raises:
        ArtifactError: if a file is missing.
    """
    data = read_manifest(path, (KERNELS,))
    with damage_reported(path / MANIFEST):
        libraries = {name: HeldFile(path / name) for name in data["sha256"] if name.endswith(".so")}
        return Source(path, data, (path / "steps.json").read_text(), libraries)


def _shared_weights(path: Path) -> Weights | None:
    """The weights of a part, which lie in the artifact around it; None if there is none."""
    path = path.resolve()
    whole = path.parent
    if kind_of(whole) == KERNELS:
        return None
    data = read_manifest(whole)
    numbers = [part["weights"] for part in data["parts"] if part["path"] == path.name]
    entries = [data["weights"][number] for number in numbers[0]]
    return read_weights(whole / WEIGHTS, entries, data["sha256"][WEIGHTS])
