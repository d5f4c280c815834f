"""Fuzzing in a worker that may crash or hang: it is killed after its time and another one goes on."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from autotune.host.fork_server import Handler, Job, Start
from autotune.host.machine import host_target
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from tests.fuzz.attentions import attention_model
from tests.fuzz.engine import Found, Sample, examine
from tests.fuzz.graphs import kernel_model, random_model, rare_sample
from tests.fuzz.grower import NoFitError
from tests.fuzz.halves import in_halves
from tests.fuzz.mutated import mutated_sample

HANDLER = f"{__name__}:FuzzHandler"

LIMIT_S = 120.0
"""Wall-clock seconds of one graph; ordinary ones take one."""

MEMORY_BYTES = 6 << 30


FAMILIES: dict[str, Callable[[int], Sample]] = {
    "random": lambda seed: Sample(random_model(seed)),
    "contrib": lambda seed: Sample(random_model(seed, contrib=True)),
    "kernels": lambda seed: Sample(kernel_model(seed)),
    "mutated": mutated_sample,
    "rare": rare_sample,
    "attention": lambda seed: Sample(attention_model(seed)),
    "half": lambda seed: Sample(in_halves(random_model(seed))),
}
"""Kind of graphs → the graph of a seed."""


@dataclass(frozen=True)
class Examine(Job):
    """Examine the graph of one seed and family."""

    seed: int
    family: str = "random"


class FuzzHandler(Handler):
    """Examines graphs.

    Args:
        stage: file that always holds what the current graph's next stage is.
    """

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._target = host_target()  # once: a run may leave this thread pinned to a core

    def answer(self, job: Examine) -> Found:
        """What became of a seed."""
        try:
            return examine(FAMILIES[job.family](job.seed), job.seed, self._stage.write_text, self._target)
        except NoFitError:
            return Found(job.seed, "no graph")
        except Exception as error:  # a bug, whichever it is: the report says where
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            return Found(job.seed, "error", where, f"{type(error).__name__}: {text[:200]} … {text[-300:]}")


def fuzz(
    server: ForkServerProcess,
    seeds: Iterable[int],
    limit_s: float = LIMIT_S,
    handler: str = HANDLER,
    family: str = "random",
) -> Iterator[Found]:
    """The outcome of every seed of a family, in order, in workers of ``server``."""
    with tempfile.TemporaryDirectory(prefix="tune-fuzz-") as folder:
        stage = Path(folder) / "stage"
        with closing(WorkerPool(server, Start(handler, stage), 1, tries=1)) as pool:
            for seed in seeds:
                stage.write_text("import")
                (answer,) = pool.run([Examine(seed, family, timeout_s=limit_s, memory_bytes=MEMORY_BYTES)])
                yield _after_loss(seed, answer, stage.read_text()) if isinstance(answer, Lost) else answer


def _after_loss(seed: int, lost: Lost, stage: str) -> Found:
    if lost.error != "timeout":
        return Found(seed, "crash", stage, lost.message)
    # A random config may compile for long; a measurer would have given it up after its own limit.
    return Found(seed, "slow build" if stage == "build tuned" else "hang", stage, lost.message)
