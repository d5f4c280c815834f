"""Injects mistakes into the kernels of small models and counts those that the check of measured kernels lets pass."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.measure.evaluator import Adaptive
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measure_limits import MeasureLimits
from autotune.measure.measurer import Candidate
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from schedules.vocabulary.errors import ScheduleError
from tests.models import cached
from tests.models.quantised import quantise
from tests.mutation import lowering
from tests.mutation.mutants import Mutant
from tests.mutation.oracle import is_wrong

MODELS = (
    "tiny_cnn",
    "tiny_odd",
    "tiny_strided",
    "tiny_grouped",
    "tiny_branches",
    "tiny_gated",
    "tiny_mlp",
    "tiny_encoder",
)

QUANTISED = ("tiny_cnn:u8s8", "tiny_strided:s8s8", "tiny_gated:u8s8", "tiny_mlp:dynamic", "tiny_encoder:u8s8")
"""Models as ONNX Runtime's quantiser makes them of others: zero points, scales and sums of bytes can be wrong."""

QUICK = Adaptive(least_runs=1, most_runs=1, cap_s=0.001)
"""Mutants are timed once: only the verdict counts."""

ORACLE_S = 60.0


@dataclass
class Tally:
    """What became of the mutants.

    Attributes:
        rejected: by the kind of error that the check reported.
        harmless: kinds of mutants that compute the same, within the tolerances, on every other input too.
        missed: wrong kernels that passed.
        close: kernels that passed and compute other numbers, but within the tolerances on every other input.
        by_kind: mistake → wrong kernels, all of them rejected but the missed ones.
    """

    rejected: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    close: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """Wrong kernels in all."""
        return sum(self.rejected.values()) + len(self.missed)

    @property
    def share(self) -> float:
        """Rejected of all wrong ones."""
        return sum(self.rejected.values()) / max(1, self.wrong)

    @property
    def strict_share(self) -> float:
        """Rejected of all wrong and close ones."""
        return sum(self.rejected.values()) / max(1, self.wrong + len(self.close))

    def lines(self) -> list[str]:
        """For people."""
        first = (
            f"{self.wrong} wrong kernels: {self.wrong - len(self.missed)} rejected ({100 * self.share:.2f} %); "
            f"{sum(self.harmless.values())} more mutants were harmless"
        )
        return [
            first,
            "rejected as: " + ", ".join(f"{kind} {count}" for kind, count in self.rejected.most_common()),
            "mistakes: " + ", ".join(f"{kind} {count}" for kind, count in self.by_kind.most_common()),
            "harmless: " + ", ".join(f"{kind} {count}" for kind, count in self.harmless.most_common()),
            f"close: {len(self.close)}; with them {100 * self.strict_share:.2f} % are rejected",
            *(f"missed: {text}" for text in self.missed),
            *(f"close: {text}" for text in self.close),
        ]


def candidates(models: Iterable[str], target: Target, rng: np.random.Generator) -> list[Candidate]:
    """Every kernel of the models, untuned and with two random configs that apply."""
    by_key: dict[tuple[str, str], Candidate] = {}
    for name in models:
        program = import_program(simplify(_model(name)), target)
        for task in program.tasks:
            text = program.programs[task.key]
            space = program.spaces[task.key]
            configs = [BASELINE] + (space.sample(2, rng) if space.knobs else [])
            for config in configs:
                try:
                    lower(load_program(text), config, target)
                except ScheduleError:
                    continue
                by_key[task.key, config.to_json()] = Candidate(task, text, config)
    return list(by_key.values())


def _model(name: str) -> onnx.ModelProto:
    """``MODEL`` or ``MODEL:KIND``."""
    plain, _, kind = name.partition(":")
    if not kind:
        return load_model(cached(plain))
    with tempfile.TemporaryDirectory(prefix="tune-quantised-") as folder:
        return load_model(quantise(load_model(cached(plain)), kind, Path(folder) / "model.onnx"))


def run(count: int, models: Iterable[str] = MODELS, seed: int = 0, tally: Tally | None = None) -> Iterator[Tally]:
    """Inject ``count`` mistakes; yields the tally after each batch."""
    target = host_target()
    rng = np.random.default_rng(seed)
    pool = candidates(models, target, rng)
    tally = tally or Tally()
    numbers = [int(rng.integers(1 << 30)) for _ in range(count)]
    owners = sorted(int(rng.integers(len(pool))) for _ in range(count))
    with LocalMeasurer(
        target, evaluator=QUICK, lowering=lowering.LOWERING, limits=MeasureLimits(compile_s=60.0, run_s=30.0)
    ) as measurer:
        for owner in dict.fromkeys(owners):
            right = pool[owner]
            mine = [number for number, of in zip(numbers, owners, strict=True) if of == owner]
            _batch(tally, measurer, right, mine, target)
            yield tally


def _batch(tally: Tally, measurer: LocalMeasurer, right: Candidate, numbers: list[int], target: Target) -> None:
    mutants = [Candidate(right.task, right.program, lowering.mutated(right.config, number)) for number in numbers]
    original, *measured = measurer.measure([right, *mutants])
    assert original.ok, f"{right.task.name} {right.config.to_json()}: {original.message}"
    for mutant, measurement in zip(mutants, measured, strict=True):
        mistake = lowering.mistake(load_program(mutant.program), mutant.config, target)
        if measurement.error in ("lower_error", "compile_error"):
            tally.harmless["does not build"] += 1
        elif measurement.error is not None:
            tally.rejected[measurement.error] += 1
            tally.by_kind[mistake.kind] += 1
        elif measurement.code_hash == original.code_hash or not _wrong(mutant, target):
            tally.harmless[mistake.kind] += 1
        else:
            tally.by_kind[mistake.kind] += 1
            tally.missed.append(_told(mutant, mistake))


def _told(mutant: Candidate, mistake: Mutant) -> str:
    where = f"{mutant.task.name} of shapes {mutant.task.shapes}, {mutant.config.to_json()}"
    return f"{mistake.kind} (place {mistake.place}) in {where}"


def _wrong(mutant: Candidate, target: Target) -> bool:
    """The oracle's word, in a process that may crash or hang: a kernel that does so is wrong."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tune-oracle-") as folder:
        ours, theirs = context.Pipe()
        process = context.Process(target=_ask, args=(theirs, mutant, target, Path(folder)), daemon=True)
        process.start()
        theirs.close()
        try:
            return bool(ours.recv()) if ours.poll(ORACLE_S) else True
        except EOFError:
            return True
        finally:
            process.kill()
            process.join()


def _ask(connection, mutant: Candidate, target: Target, folder: Path) -> None:  # type: ignore[no-untyped-def]
    connection.send(is_wrong(mutant, target, folder))
