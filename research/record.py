"""``python -m research.record STAGE``: record traces for ``tune replay`` on this machine.

Stages, each of which can be stopped and goes on where it was:

    compile NAME…   build the configs of the named tasks or models in parallel; objects stay under build/traces/
    scout NAME…     time a few runs of what was built, which finds the fast configs
    near NAME…      build what is one step of one knob away from the fastest; scout again after it
    time NAME…      time what was built, in interleaved passes, on an otherwise idle machine
    pack NAME…      write FOLDER/NAME.npz

A task's first pass takes a few runs of every config one after the other and finds the fast ones. In every later pass
configs of like speed run in turn in batches, together with a control (the fastest config of the first pass), so that
the machine's speed at that moment is known; batches come in an order drawn anew for every pass. The fastest are in
extra passes at the end, all of them in turn and in an order drawn anew, so that each is its rivals' control.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from autotune.host.fork_server import Start
from autotune.host.machine import thread_cpus
from autotune.host.worker_pool import ONE_THREAD, ForkServerProcess, Lost, WorkerPool
from autotune.importer.guarded_import import import_model
from autotune.measure.evaluator import BASELINE_EVALUATOR
from autotune.measure.local_measurer import KERNEL_HANDLER, LOWERING
from autotune.measure.measure_limits import kernel_variables
from autotune.measure.measurer import symbol_of
from autotune.measure.messages import BuildJob, Built, Reference, ReferenceJob, Settings, TimedAll, TimeJob
from autotune.options import Options
from autotune.tuning.run_plan import resolve_target
from autotune.tuning.search_program import cold_bytes
from research.enough import Enough
from research.packing import TRACES, pack
from research.sampling import sampled
from schedules.lower import BASELINE
from schedules.space import Space
from schedules.task import Task

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "build" / "models"
FOLDER = ROOT / "build" / "traces"

TASKS = {
    "conv1x1": ("resnet50", "conv2d", 1024 * 14 * 14, 256 * 1024),
    "conv1x1-wide": ("resnet50", "conv2d", 64 * 56 * 56, 256 * 64),
    "conv3x3": ("resnet50", "conv2d", 512 * 7 * 7, 512 * 512 * 9),
    "conv3x3-strided": ("resnet50", "conv2d", 128 * 56 * 56, 128 * 128 * 9),
    "conv3x3-fire": ("squeezenet", "conv2d", 48 * 13 * 13, 192 * 48 * 9),
    "conv3x3-int8": ("qdq_cnn", "conv2d", 64 * 56 * 56, 64 * 64 * 9),
    "conv7x7": ("resnet50", "conv2d", 3 * 224 * 224, 64 * 3 * 49),
    "depthwise": ("efficientnet_b0", "depthwise", 32 * 112 * 112, 32 * 9),
    "dense": ("encoder", "matmul", 128 * 768, 768 * 768),
    "dense-lstm": ("lstm", "matmul", 100 * 512, 2048 * 512),
    "batch_matmul": ("encoder", "batch_matmul", 12 * 128 * 128, 12 * 128 * 64),
    "softmax": ("encoder", "rows", 12 * 128 * 128, 12 * 128 * 128),
}
"""Name → model, template, elements of the first two shapes: the first such task of the model, whatever its blocks are.

Each is exhausted, or sampled where the space is larger than ``MOST``."""

WHOLE = (
    *("squeezenet", "encoder", "mobilenet_v2", "alexnet", "unet", "shufflenet", "qdq_cnn", "lstm", "gru"),
    *("resnet50", "vgg19"),
)
"""Models of which every task is sampled."""

MOST, MOST_OF_MODEL = 1400, 64
CENTRES = 3
"""Fastest configs of a task whose neighbours are recorded, too: a local search must not run dry beside the best."""
COMPILE_TIMEOUT_S = 10.0
BATCH, SCOUTS, RUNS, PASSES = 8, 2, 12, 4
CAP_S = 0.06
"""A config's runs in one pass take no longer than this, but for two of them."""
SCOUTED = 100
"""Configs that the first pass times before it writes down what it found."""
SLOW = 6.0
"""Configs slower than the fastest by this factor are left at what the first pass found."""
TOP, TOP_PASSES = 32, 8

KEPT, KEPT_OF_MODEL = (40, 4), (12, 2)
"""Runs of a pass, and passes over everything, that a file keeps; the best estimates come from all passes."""


@dataclass
class Model:
    """A model's program, imported once."""

    name: str

    @cached_property
    def path(self) -> Path:
        files = sorted(MODELS.glob(f"{self.name}-*.onnx")) or sorted(MODELS.glob(f"{self.name}.onnx"))
        return files[0]

    @cached_property
    def program(self):  # type: ignore[no-untyped-def]
        return import_model(self.path, {}, resolve_target(Options()))[1]

    @property
    def cold_bytes(self) -> int:
        return cold_bytes(self.program)

    def task(self, key: str) -> Task:
        return next(task for task in self.program.tasks if task.key == key)

    def key_of(self, template: str, *elements: int) -> str:
        """The first task of that template whose first shapes have so many elements."""
        keys = (
            task.key
            for task in self.program.tasks
            if task.template == template and tuple(math.prod(shape) for shape in task.shapes[:2]) == elements
        )
        return next(keys)


@dataclass
class Work:
    """One task to record and its folder: configs.jsonl (one line per built config), passes.jsonl, objects."""

    model: Model
    key: str
    most: int

    @property
    def task(self) -> Task:
        return self.model.task(self.key)

    @property
    def space(self) -> Space:
        return self.model.program.spaces[self.key]  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.model.name}-{self.key}"

    def lines(self, name: str) -> list[dict[str, object]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, name: str, lines: Sequence[dict[str, object]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / name).open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def works(names: Sequence[str]) -> Iterator[Work]:
    """What the names of tasks and models stand for."""
    models = {name: Model(name) for name in {*WHOLE, *(model for model, *_ in TASKS.values())}}
    for name in names:
        if name in TASKS:
            model, *task = TASKS[name]
            yield Work(models[model], models[model].key_of(*task), MOST)
        else:
            for task in models[name].program.tasks:
                if models[name].program.spaces[task.key].knobs:
                    yield Work(models[name], task.key, MOST_OF_MODEL)


class Machine:
    """Workers that build and one that times, as ``LocalMeasurer`` has them."""

    def __init__(self, builders: int) -> None:
        target = resolve_target(Options())
        self.directory = Path(tempfile.mkdtemp(prefix="record-"))
        settings = Settings(target, thread_cpus(target.threads), 0, LOWERING, str(self.directory))
        self._server = ForkServerProcess(self.directory, ONE_THREAD)
        start = Start(KERNEL_HANDLER, settings, kernel_variables(target))
        self.builders = WorkerPool(self._server, start, builders)
        self.timer = WorkerPool(self._server, start, 1)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def sample_of(work: Work) -> list[list[int]]:
    """Rows that the first stage builds."""
    return sampled(work.space, work.key, work.most).tolist()  # type: ignore[no-any-return]


def nearest(work: Work) -> list[list[int]]:
    """Rows one step of one knob away from the ``CENTRES`` fastest."""
    speeds = speeds_of(work.lines("passes.jsonl"))
    timed = [line for line in work.lines("configs.jsonl") if line["row"] and line["code"] in speeds]
    timed.sort(key=lambda line: speeds[str(line["code"])])
    centres = [work.space.config(np.array(line["row"], dtype=np.int32)) for line in timed[:CENTRES]]
    steps = dict.fromkeys(near for config in centres for near in work.space.neighbours(config))
    return [work.space.row(config).tolist() for config in steps]


def speeds_of(passes: Sequence[dict[str, object]]) -> dict[str, float]:
    """Median over passes of the least run, in nanoseconds by code, of what runs right."""
    runs: dict[str, list[float]] = {}
    for line in passes:
        if line.get("code") and not line.get("error"):
            runs.setdefault(str(line["code"]), []).append(min(line["runs"]))  # type: ignore[call-overload]
    return {code: float(np.median(values)) for code, values in runs.items()}


def compile_stage(names: Sequence[str], seconds: float, rows_of: Callable[[Work], list[list[int]]]) -> bool:
    """Build until done (True) or out of time."""
    end = time.monotonic() + seconds
    with Machine(2) as machine:
        for work in works(names):
            built = {tuple(line["row"]) for line in work.lines("configs.jsonl")}  # type: ignore[arg-type]
            rows = rows_of(work)
            left = [row for row in rows if tuple(row) not in built]
            if not built:
                _build(machine, work, [])
            for start in range(0, len(left), 32):
                if time.monotonic() > end:
                    return False
                _build(machine, work, left[start : start + 32])
            print(work.folder.name, work.task.template, len(rows), "of", work.space.size, flush=True)
    return True


def _build(machine: Machine, work: Work, rows: list[list[int]]) -> None:
    """Build ``rows``; an empty list stands for the untuned program."""
    work.folder.mkdir(parents=True, exist_ok=True)
    program = work.folder / "program.json"
    if not program.exists():
        program.write_text(work.model.program.programs[work.key])
    names = [f"{'-'.join(map(str, row))}.so" for row in rows] or ["untuned.so"]
    configs = [work.space.config(np.array(row, dtype=np.int32)) for row in rows] or [BASELINE]
    limit = COMPILE_TIMEOUT_S if rows else 120.0
    jobs = [
        BuildJob(str(program), config, str(work.folder / name), symbol_of(work.key), timeout_s=limit)
        for name, config in zip(names, configs, strict=True)
    ]
    answers = machine.builders.run(jobs)
    lines: list[dict[str, object]] = []
    for row, name, answer in zip(rows, names, answers, strict=bool(rows)):
        (work.folder / name).with_suffix(".o").unlink(missing_ok=True)
        built = Built(answer.spent_s, "", answer.error, answer.message) if isinstance(answer, Lost) else answer
        assert isinstance(built, Built)
        lines.append(
            {"row": row, "compile_s": built.compile_s, "code": built.code_hash, "error": built.error}
            | {"message": built.message[:120]}
        )
    work.add("configs.jsonl", lines)


def time_stage(names: Sequence[str], seconds: float, passes: int, top_passes: int, runs: int) -> bool:
    """Time until done (True) or out of time; a pass that was begun is finished."""
    end = time.monotonic() + seconds
    with Machine(1) as machine:
        for work in works(names):
            if not work.lines("configs.jsonl"):
                continue
            recording = TaskRecording(machine, work, runs)
            while not recording.done(passes, top_passes):
                if time.monotonic() > end:
                    return False
                began = time.monotonic()
                recording.next_pass(passes)
                print(work.folder.name, f"pass {recording.count} {time.monotonic() - began:.1f} s", flush=True)
    return True


class TaskRecording:
    """The passes over one task."""

    def __init__(self, machine: Machine, work: Work, runs: int) -> None:
        self._machine = machine
        self._work = work
        self._runs = runs
        self._configs = [line for line in work.lines("configs.jsonl") if line["error"] is None]
        self._passes = work.lines("passes.jsonl")
        self._reference: Reference | None = None

    @property
    def count(self) -> int:
        """Passes so far, the scouts included."""
        if self._scouted() < len(self._distinct()):
            return 0
        return 1 + max(int(line["pass"]) for line in self._passes)  # type: ignore[call-overload]

    def _scouted(self) -> int:
        return sum(line["pass"] == 0 for line in self._passes)

    def done(self, passes: int, top_passes: int) -> bool:
        return self.count >= 1 + passes + (top_passes if len(self._distinct()) > 2 * TOP else 0)

    def next_pass(self, passes: int) -> None:
        """Scouts first, then everything, then the top."""
        if self._reference is None:
            self._set_reference()
        number = self.count
        speeds = speeds_of(self._passes)
        lines: list[dict[str, object]] = []
        if number == 0:
            for config in self._distinct()[self._scouted() :][:SCOUTED]:
                lines += self._batch([config], SCOUTS, 0, -1, None)
        else:
            order = sorted((c for c in self._distinct() if c["code"] in speeds), key=lambda c: speeds[str(c["code"])])
            control = order[0]
            order = [c for c in order if speeds[str(c["code"])] < SLOW * speeds[str(control["code"])]]
            rng = np.random.default_rng(number)
            if number <= passes:
                batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
                for place in rng.permutation(len(batches)):
                    lines += self._batch(batches[int(place)], self._runs, number, int(place), control)
            else:
                top = [order[int(place)] for place in rng.permutation(min(TOP, len(order)))]
                lines += self._batch(top, self._runs, number, 0, None)
        for line in lines:
            line["pass"] = number
        self._work.add("passes.jsonl", lines)
        self._passes += lines

    def _distinct(self) -> list[dict[str, object]]:
        return list({str(config["code"]): config for config in self._configs}.values())

    def _set_reference(self) -> None:
        work = self._work
        output = str(self._machine.directory / f"{work.key}.npy")
        job = ReferenceJob(
            work.task,
            str(work.folder / "untuned.so"),
            output,
            BASELINE_EVALUATOR,
            work.model.cold_bytes,
            timeout_s=120.0,
        )
        (answer,) = self._machine.timer.run([job])
        assert isinstance(answer, TimedAll), answer
        self._reference = Reference(output, answer.positive)
        facts = {"untuned_s": float(np.median(answer.runs[0].latencies_s)), "cold_bytes": work.model.cold_bytes}
        (work.folder / "facts.json").write_text(json.dumps(facts))

    def _batch(
        self,
        batch: Sequence[dict[str, object]],
        runs: int,
        number: int,
        place: int,
        control: dict[str, object] | None,
    ) -> list[dict[str, object]]:
        """Lines of one batch; a batch whose worker is lost is taken apart."""
        work = self._work
        members = [*batch, *([control] if control else [])]
        configs = tuple(work.space.config(np.array(member["row"], dtype=np.int32)) for member in members)
        paths = tuple(str(work.folder / f"{'-'.join(map(str, m['row']))}.so") for m in members)  # type: ignore[call-overload]
        assert self._reference is not None
        job = TimeJob(
            work.task, paths, configs, str(work.folder / "program.json"), self._reference, Enough(runs, CAP_S), None,
            None, work.model.cold_bytes, timeout_s=30.0,
        )  # fmt: skip
        began = time.perf_counter()
        (answer,) = self._machine.timer.run([job])
        spent = (time.perf_counter() - began) / len(members)
        if isinstance(answer, Lost):
            if len(batch) > 1:
                return [line for one in batch for line in self._batch([one], runs, number, place, None)]
            return [{"code": batch[0]["code"], "error": answer.error, "runs": [], "spent_s": answer.spent_s}]
        assert isinstance(answer, TimedAll)
        lines: list[dict[str, object]] = []
        for member, timed in zip(batch, answer.runs, strict=False):
            rounded = [round(run * 1e9) for run in timed.latencies_s]
            lines.append({"code": member["code"], "error": timed.error, "runs": rounded, "spent_s": spent})
            lines[-1]["batch"] = place
        if control is not None:
            rounded = [round(run * 1e9) for run in answer.runs[-1].latencies_s]
            lines.append({"control": control["code"], "runs": rounded, "batch": place})
        return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research.record", description=__doc__)
    parser.add_argument("stage", choices=("compile", "scout", "near", "time", "pack"))
    parser.add_argument("names", nargs="*", default=list(TASKS), help=f"of {', '.join([*TASKS, *WHOLE])}")
    parser.add_argument("--seconds", type=float, default=240.0, help="stop after this long and say so")
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--top-passes", type=int, default=TOP_PASSES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--folder", type=Path, default=TRACES, help="where the files go")
    arguments = parser.parse_args()
    names, seconds, done = arguments.names, arguments.seconds, True
    if arguments.stage in ("compile", "near"):
        done = compile_stage(names, seconds, sample_of if arguments.stage == "compile" else nearest)
    elif arguments.stage == "scout":
        done = time_stage(names, seconds, 0, 0, SCOUTS)
    elif arguments.stage == "time":
        done = time_stage(names, seconds, arguments.passes, arguments.top_passes, arguments.runs)
    else:
        for name in names:
            kept = KEPT_OF_MODEL if name in WHOLE else KEPT
            pack(arguments.folder / f"{name}.npz", list(works([name])), *kept)
    print("done" if done else "not done: run it again", flush=True)
    return 0 if done else 3


if __name__ == "__main__":
    sys.exit(main())
