"""The artifact directory: written whole or not at all, and checked before it is trusted.

    manifest.json   format version, sha256 of every file, itself too, target, inputs, outputs, weights, provenance
    plan.json       the decisions
    steps.json      the kernel calls in order and where every tensor lies; null if the virtual machine runs the model
    model.so        the kernels and the program that calls them; model-1t.so and so on are for lanes of fewer threads
    device-2.1/ …   artifacts of the subgraphs that a device runs, where a model was placed on a CPU and a GPU
    weights.bin     packed weights, each aligned to a page of ALIGNMENT bytes
    tasks.json.gz   the tasks and their untuned programs, to look inside (autotune/report/inspect_kernels.py); not needed to run
    history.json.gz, bench.json
                    how it was tuned (autotune/tuning/run_history.py) and how it compares ('tune bench'), for 'tune report'; added
                    afterwards, and not needed to run or even to load

No pickles: reading an artifact runs nothing but its compiled code.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from autotune.artifact.plan import Plan
from autotune.graph.lanes import Lane
from autotune.graph.steps import Group, Operand, Step, Steps
from autotune.host.machine import host_target
from autotune.host.pages import ALIGNMENT, paged
from autotune.importer.program import Program, TensorSpec
from schedules.errors import ArtifactError
from schedules.target import Target
from schedules.task import Task

FORMAT = 1
SEVERAL = 2
ISLANDS = 3
"""Format of a bundle of several artifacts (autotune/artifact/bundle.py)."""
UNSEALED = "0" * 64
FILES = ("plan.json", "steps.json", "model.so", "weights.bin", "tasks.json.gz")


@dataclass(frozen=True)
class Artifact:
    """A checked artifact directory, opened.

    Attributes:
        identity: hash of what was built, see ``identity``.
    """

    path: Path
    plan: Plan
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[NDArray[Any], ...]
    steps: Steps | None
    identity: str
    provenance: dict[str, Any]

    @property
    def library(self) -> Path:
        """The shared library."""
        return self.path / "model.so"

    @property
    def device_parts(self) -> dict[str, Path]:
        """Subgraph → the artifact of what a device runs of the model (``autotune/tuning/coupled.py``)."""
        steps = self.steps
        groups = () if steps is None else (group for group in steps.groups if steps.lanes[group.lane].device)
        return {group.name: self.path / device_folder(group.name) for group in groups}

    @property
    def lane_libraries(self) -> dict[int, Path]:
        """Threads of a lane → the library with kernels built for so many, where that is not ``library``."""
        lanes = self.steps.lanes if self.steps is not None else ()
        threads = {lane.threads for lane in lanes if not lane.device}
        return {count: self.path / lane_library(count) for count in sorted(threads - {self.target.threads})}


def lane_library(threads: int) -> str:
    """File name of the library for lanes of ``threads`` threads."""
    return f"model-{threads}t.so"


def device_folder(name: str) -> str:
    """Folder of the artifact of a subgraph that a device runs."""
    return f"device-{name}"


_MORE = re.compile(r"model-\d+t\.so|device-[\w.]+/manifest\.json")


def _more_files(folder: Path) -> list[str]:
    """Libraries for lanes of fewer threads; the manifests of what devices run, which vouch for their own files."""
    paths = [*folder.iterdir(), *folder.glob("device-*/manifest.json")]
    return sorted(name for path in paths if _MORE.fullmatch(name := path.relative_to(folder).as_posix()))


def sha256(path: Path) -> str:
    """Hash of a file's bytes, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_file(path: Path, digest: str) -> None:
    """Whether a file is the one that was built.

    Raises:
        ArtifactError: if it is missing or its hash is not ``digest``.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; build the artifact again")
    if sha256(path) != digest:
        raise ArtifactError(f"{path} was changed after it was built (its hash differs); build the artifact again")


def identity(program: Program, plan: Plan) -> str:
    """Hash of everything that decides what an artifact computes and how: graph, weights and plan.

    The plan alone is not enough: two models of the same kernels differ in their wiring or their weights.
    """
    digest = hashlib.sha256(plan.digest.encode())
    digest.update(f"{tvm_ffi.structural_hash(program.module):016x}".encode())
    digest.update(repr((program.inputs, program.outputs)).encode())
    for array in program.weights:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_artifact(
    out: Path,
    program: Program,
    plan: Plan,
    steps: Steps | None,
    digest: str,
    provenance: dict[str, Any],
    build: Callable[[Path], None],
) -> None:
    """Build into a temporary folder beside ``out`` and swap it in with one rename.

    Args:
        program: with weights as the plan's kernels want them.
        steps: the program as flat steps; None if ``build`` writes a library for the virtual machine.
        digest: ``identity`` of the program as imported, and the plan.
        build: writes the shared library to the path it is given.

    Raises:
        ArtifactError: if the folder cannot be written, or ``out`` exists and is not an artifact.
    """
    with scratch_beside(out) as folder, writing(out):
        build(folder / "model.so")
        (folder / "plan.json").write_text(plan.to_json())
        (folder / "tasks.json.gz").write_bytes(_packed_tasks(program))
        (folder / "steps.json").write_text(json.dumps(None if steps is None else asdict(replace(steps, weights=()))))
        entries = write_weights(folder / "weights.bin", program.weights)
        manifest = {
            "format": FORMAT,
            "sha256": {name: sha256(folder / name) for name in (*FILES, *_more_files(folder))},
            "identity": digest,
            "target": json.loads(plan.target.to_json()),
            "inputs": [asdict(spec) for spec in program.inputs],
            "outputs": [asdict(spec) for spec in program.outputs],
            "weights": entries,
            "provenance": provenance,
        }
        seal(folder, manifest, out)


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """An empty folder beside ``out``, on the same file system; what is left of it is removed.

    Raises:
        ArtifactError: if it cannot be made, or ``out`` exists and is not an artifact.
    """
    check_place(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    except OSError as error:
        raise ArtifactError(f"cannot write beside {out} ({error.strerror}); name another --out") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """What the system refuses while ``out`` is written, as one sentence.

    Raises:
        ArtifactError: if it does.
    """
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {out} ({error.strerror}); free some space or name another --out") from error


def seal(folder: Path, manifest: Mapping[str, Any], out: Path) -> None:
    """Complete ``folder`` with its sealed manifest, and put it in place of ``out``."""
    (folder / "manifest.json").write_text(sealed(manifest))
    folder.chmod(0o755)
    _swap(folder, out)


def _packed_tasks(program: Program) -> bytes:
    data = {"tasks": [asdict(task) for task in program.tasks], "programs": program.programs}
    return gzip.compress(json.dumps(data).encode(), mtime=0)  # no time: equal plans build equal files


def read_tasks(path: Path) -> tuple[tuple[Task, ...], dict[str, str]]:
    """The tasks of the artifact at ``path``, most work first, and their programs by key (``schedules.lower``).

    Raises:
        ArtifactError: if they cannot be read.
    """
    try:
        data = json.loads(gzip.decompress((path / "tasks.json.gz").read_bytes()))
        tasks = tuple(
            Task(
                **{
                    **fields,
                    "shapes": tuple(tuple(shape) for shape in fields["shapes"]),
                    "dtypes": tuple(fields["dtypes"]),
                    "constants": tuple(fields["constants"]),
                }
            )
            for fields in data["tasks"]
        )
        return tasks, dict(data["programs"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path / 'tasks.json.gz'} is damaged ({error}); build the artifact again") from error


def annotate(path: Path, provenance: dict[str, Any]) -> None:
    """Add to the provenance of the artifact at ``path``, in one rename."""
    data = read_manifest(path)
    data["provenance"] = {**data["provenance"], **provenance}
    fresh = path / "manifest.json.new"
    fresh.write_text(sealed(data))
    fresh.replace(path / "manifest.json")


def attach(path: Path, name: str, content: bytes) -> None:
    """Add the file ``name`` to the artifact at ``path``, or replace it; listed in the manifest with its hash.

    Raises:
        ArtifactError: if it cannot be written.
    """
    data = read_manifest(path)
    data["sha256"] = {**data["sha256"], name: hashlib.sha256(content).hexdigest()}
    try:
        for target, bytes_ in ((path / name, content), (path / "manifest.json", sealed(data).encode())):
            fresh = target.with_name(f"{target.name}.new")
            fresh.write_bytes(bytes_)
            fresh.replace(target)
    except OSError as error:
        raise ArtifactError(f"cannot write into {path} ({error.strerror}); check its permissions and space") from error


def attachment(path: Path, name: str) -> bytes | None:
    """What ``attach`` wrote, or None if nothing was.

    Raises:
        ArtifactError: if the file is gone or was changed since.
    """
    digest = read_manifest(path)["sha256"].get(name)
    if digest is None:
        return None
    if not (path / name).is_file() or sha256(path / name) != digest:
        raise ArtifactError(
            f"{path / name} was lost or changed after it was written; run 'tune run' or 'tune bench' again"
        )
    return (path / name).read_bytes()


def install(path: Path, out: Path) -> None:
    """Move the artifact at ``path`` to ``out``, in place of what is there.

    Raises:
        ArtifactError: if ``out`` is something else than an artifact.
    """
    if path == out:
        return
    check_place(out)
    _swap(path, out)


def check_place(out: Path) -> None:
    """Refuse to write over anything but an artifact or an empty folder.

    Raises:
        ArtifactError: if ``out`` is something else.
    """
    if out.exists() and not (out / "manifest.json").is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out} exists and is not an artifact; name another --out")


def _swap(folder: Path, out: Path) -> None:
    if out.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
        os.rename(out, aside / "old")
        os.rename(folder, out)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.rename(folder, out)


def write_weights(path: Path, weights: Sequence[NDArray[Any]]) -> list[dict[str, Any]]:
    """Write all of them, aligned; where each lies, for the manifest."""
    entries = []
    with path.open("wb") as stream:
        for array in weights:
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            entries.append({"offset": stream.tell(), "shape": list(array.shape), "dtype": str(array.dtype)})
            stream.write(np.ascontiguousarray(array).tobytes())
    return entries


def sealed(manifest: Mapping[str, Any]) -> str:
    """A manifest as text; its ``seal`` is the hash of that very text with zeros in place of the seal."""
    text = json.dumps({**manifest, "seal": UNSEALED}, indent=1)
    return text.replace(UNSEALED, hashlib.sha256(text.encode()).hexdigest(), 1)


def is_sealed(text: str) -> bool:
    """Whether the text of a manifest is as ``sealed`` wrote it, to the byte."""
    seal = str(json.loads(text)["seal"])
    return seal == hashlib.sha256(text.replace(seal, UNSEALED, 1).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the artifact at ``path``.

    Raises:
        ArtifactError: if there is none, it was changed, or it is of another format.
    """
    manifest = path / "manifest.json"
    if not manifest.is_file():
        raise ArtifactError(f"{path} is not an artifact (no manifest.json); make one with 'tune run MODEL'")
    try:
        text = manifest.read_text()
        data: dict[str, Any] = json.loads(text)
        version = data["format"]
        untouched = version != FORMAT or is_sealed(text)
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{manifest} is damaged ({error}); build the artifact again") from error
    if version == SEVERAL:
        raise ArtifactError(f"{path} serves several sets of shapes; name one of its parts, such as {path / 'part-0'}")
    if version == ISLANDS:
        raise ArtifactError(f"{path} has islands; name one of its tuned segments, such as {path / _tuned(path)}")
    if version != FORMAT:
        raise ArtifactError(f"{path} has format {version}, this program reads {FORMAT}; build the artifact again")
    if not untouched:
        raise ArtifactError(f"{manifest} was changed after it was built (its hash differs); build the artifact again")
    return data


def _tuned(path: Path) -> str:
    """The first tuned segment in an artifact with islands: any of them may be an island (autotune/artifact/chain.py)."""
    return min((part.parent.name for part in path.glob("part-*/manifest.json")), key=_number, default="part-0")


def _number(name: str) -> int:
    digits = name.removeprefix("part-")
    return int(digits) if digits.isdecimal() else 0


def read_artifact(path: Path, weights: tuple[NDArray[Any], ...] | None = None) -> Artifact:
    """Open and check an artifact.

    Args:
        weights: those of a part of a bundle (autotune/artifact/bundle.py), which has no weights.bin of its own.

    Raises:
        ArtifactError: if a file is missing or changed, or the artifact is for another machine.
    """
    data = read_manifest(path)
    if weights is None and not (path / "weights.bin").exists():
        weights = _shared_weights(path)
    try:
        for name in (*FILES, *(name for name in data["sha256"] if _MORE.fullmatch(name))):
            if name == "weights.bin" and weights is not None:
                continue
            check_file(path / name, data["sha256"][name])
        target = Target.from_json(json.dumps(data["target"]))
        _check_machine(path, target)
        return Artifact(
            path,
            Plan.from_json((path / "plan.json").read_text()),
            target,
            tuple(_spec(item) for item in data["inputs"]),
            tuple(_spec(item) for item in data["outputs"]),
            read_weights(path / "weights.bin", data["weights"]) if weights is None else weights,
            _read_steps(path / "steps.json"),
            str(data["identity"]),
            dict(data["provenance"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path / 'manifest.json'} is damaged ({error!r}); build the artifact again") from error


def _shared_weights(path: Path) -> tuple[NDArray[Any], ...] | None:
    """The weights of an artifact that is part of a bundle; None if it is not."""
    manifest = path.resolve().parent / "manifest.json"
    try:
        text = manifest.read_text()
        data = json.loads(text)
        if data["format"] != SEVERAL or not is_sealed(text):
            return None
        pool = manifest.parent / "weights.bin"
        check_file(pool, data["sha256"][pool.name])
        own = data["parts"][int(path.resolve().name.removeprefix("part-"))]["weights"]
        return read_weights(pool, [data["weights"][index] for index in own])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None  # not a part, or a damaged one: its own weights.bin is what is missing


def _read_steps(path: Path) -> Steps | None:
    data = json.loads(path.read_text())
    if data is None:
        return None

    def operand(item: dict[str, Any]) -> Operand:
        return Operand(item["place"], int(item["index"]), tuple(int(x) for x in item["shape"]), str(item["dtype"]))

    calls = tuple(Step(str(c["symbol"]), tuple(operand(o) for o in c["operands"])) for c in data["calls"])
    lanes = tuple(
        Lane(str(x["name"]), int(x["first"]), int(x["threads"]), str(x.get("device", "")))
        for x in data.get("lanes", ())
    )
    groups = tuple(
        Group(str(g["name"]), int(g["lane"]), int(g["calls"]), tuple(int(x) for x in g["waits"]))
        for g in data.get("groups", ())
    )
    outputs = tuple(operand(o) for o in data["outputs"])
    return Steps(calls, outputs, int(data["arena_bytes"]), (), lanes, groups)


def _spec(item: dict[str, Any]) -> TensorSpec:
    return TensorSpec(str(item["name"]), tuple(int(x) for x in item["shape"]), str(item["dtype"]))


ISA_ORDER = ("generic", "avx2", "avx512", "amx")


def _check_machine(path: Path, target: Target) -> None:
    if target.kind != "llvm":
        return
    here = host_target()
    runs = here.isa == target.isa or (
        here.isa in ISA_ORDER and target.isa in ISA_ORDER and ISA_ORDER.index(target.isa) <= ISA_ORDER.index(here.isa)
    )
    if not runs:
        raise ArtifactError(
            f"{path} was built for {target.isa} and this machine has {here.isa}; tune it on this machine"
        )


def read_weights(path: Path, entries: list[dict[str, Any]]) -> tuple[NDArray[Any], ...]:
    """Inverse of ``write_weights``, in memory of this process.

    Raises:
        ArtifactError: if the file is too short.
    """
    if not entries:
        return ()
    # Read rather than mapped: a mapped file lies in small pages.
    memory = paged(path.stat().st_size)
    with path.open("rb") as stream:
        stream.readinto(memory.data)
    arrays = []
    for entry in entries:
        shape, dtype = tuple(int(x) for x in entry["shape"]), np.dtype(entry["dtype"])
        start = int(entry["offset"])
        stop = start + math.prod(shape) * dtype.itemsize
        if start < 0 or stop > memory.size:
            raise ArtifactError(f"{path} is shorter than its manifest says; build the artifact again")
        arrays.append(memory[start:stop].view(dtype).reshape(shape))
    return tuple(arrays)
