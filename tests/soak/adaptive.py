"""``python -m tests.soak.adaptive``: requests of a session that tunes meanwhile, on a machine that misbehaves.

Threads send requests of sizes that become more with time, so that artifacts are swapped in one after the other. Each
answer is compared with ONNX Runtime's. Meanwhile the tuner is killed, the disk is full or read-only, the cache folder
is removed, and the process forks. The exit code is 1 if an answer was wrong or missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import autotune
from autotune.runtime.adaptive import routes, tuner_process
from tests.models import build
from tests.models.recurrent import single
from tests.soak.residents import Counter
from tests.soak.scenarios import disk

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "lengths": lambda: build("tiny_open_length"),
    "recurrent": lambda: single("LSTM", steps="steps", batch="batch", hidden=16),  # type: ignore[arg-type]
    "batch": lambda: build("tiny_open_batch"),
}

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Open sizes, of which more are asked for as time goes on."""

CALM_S, TROUBLE_S = 8.0, 2.0
"""Average seconds between two disturbances, and seconds that a full or read-only disk lasts."""

MORE_S = 20.0
"""Seconds after which another size is asked for."""

FORK_REQUESTS = 20

Feed = dict[str, Any]


class Asked:
    """Requests with their right answers."""

    def __init__(self, model: Path) -> None:
        reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        self.of_sizes = []
        for size in SIZES:
            feeds = [self._feed(reference, size, rng) for _ in range(4)]
            self.of_sizes.append([(feed, reference.run(None, feed)) for feed in feeds])

    @staticmethod
    def _feed(reference: Any, size: int, rng: np.random.Generator) -> Feed:
        feed: Feed = {}
        for number, argument in enumerate(reference.get_inputs()):
            shape = [length if isinstance(length, int) else size for length in argument.shape]
            whole = argument.type == "tensor(int64)"
            feed[argument.name] = rng.integers(0, 32, shape) if whole else rng.standard_normal(shape, np.float32)
            if whole and number:  # a mask
                feed[argument.name] = (np.arange(size) < rng.integers(1, size + 1, (size, 1))).astype(np.int64)
        return feed


def ask(session: autotune.InferenceSession, asked: Asked, counter: Counter, most: int, rng: random.Random) -> None:
    """Make one request of one of the first ``most`` sizes."""
    feed, wanted = rng.choice(asked.of_sizes[rng.randrange(most)])
    try:
        outputs = session.run(None, feed)
        right = all(a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(outputs, wanted, strict=True))
        counter.add(right, f"another answer at {[array.shape for array in feed.values()]}")
    except Exception as error:  # whatever it is, it is not an answer
        counter.add(False, repr(error))


class Troubles:
    """Disturbances of the machine meanwhile.

    Args:
        place: a disk of its own, that holds the cache.
    """

    def __init__(self, session: autotune.InferenceSession, asked: Asked, counter: Counter, place: Path) -> None:
        self._session, self._asked, self._counter, self._place = session, asked, counter, place

    def kill(self) -> None:
        """End the tuner at a random moment."""
        if (pid := self._session.status()["pid"]) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def full_disk(self) -> None:
        """Leave no byte for a while."""
        filler = self._place / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        time.sleep(TROUBLE_S)
        filler.unlink()

    def read_only(self) -> None:
        """Refuse writing for a while."""
        remount = ["mount", "-o"]
        if not subprocess.run([*remount, "remount,ro,size=256m", self._place], capture_output=True).returncode:
            time.sleep(TROUBLE_S)
            subprocess.run([*remount, "remount,rw,size=256m", self._place], check=True)

    def remove(self) -> None:
        """Take the cache away under the session."""
        shutil.rmtree(self._place / "tune-compiler", ignore_errors=True)

    def fork(self) -> None:
        """Have a child answer too."""
        child = os.fork()
        if not child:
            own = Counter()
            rng = random.Random(0)
            for _ in range(FORK_REQUESTS):
                ask(self._session, self._asked, own, len(SIZES), rng)
            os._exit(min(own.wrong, 100))
        end = time.monotonic() + 120.0
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.1)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._counter.add(ended[0] != 0 and ended[1] == 0, f"a forked child ended with {ended}")


def served(name: str, folder: Path, requests: int, threads: int, seed: int) -> dict[str, Any]:
    """Serve model ``name`` under disturbances, and return what happened."""
    model = folder / f"{name}.onnx"
    onnx.save(MODELS[name](), model)
    asked, counter, stop = Asked(model), Counter(), threading.Event()
    session = autotune.InferenceSession(model, threads=1, adapt=autotune.Adapt(cpu_share=1.0, until="99%"))
    began = time.monotonic()
    state = {"most": 1}

    def client(number: int) -> None:
        rng = random.Random(number)
        while not stop.is_set():
            ask(session, asked, counter, state["most"], rng)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(threads)]
    for thread in clients:
        thread.start()
    rng = random.Random(seed)
    troubles = Troubles(session, asked, counter, Path(os.environ["XDG_CACHE_HOME"]))
    counts: dict[str, int] = {}
    seals: set[str] = set()
    while counter.count < requests or state["most"] < len(SIZES):
        end = time.monotonic() + rng.uniform(0.0, 2 * CALM_S)
        while time.monotonic() < end:
            seals.add(session._serving.seal)
            time.sleep(0.02)
        happens = rng.choice(
            [troubles.kill, troubles.full_disk, troubles.read_only, troubles.remove, troubles.fork, troubles.fork]
        )
        counts[happens.__name__] = counts.get(happens.__name__, 0) + 1
        happens()
        state["most"] = min(len(SIZES), 1 + int((time.monotonic() - began) / MORE_S))
    stop.set()
    for thread in clients:
        thread.join()
    status = session.status()
    on_kernels = sum(size["requests"]["kernels"] for size in status["sizes"])
    session.close()
    return {
        "model": name,
        "requests": counter.count,
        "wrong or lost": counter.wrong,
        "on kernels": on_kernels,
        "swaps": len(seals - {""}),
        "seconds": round(time.monotonic() - began),
        "troubles": counts,
        "tuner": status["tuner"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.adaptive", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tuner_process.RESTARTS = 1000  # it is killed more often than a machine fails
    routes.LEAST_GAIN = 0.0  # kernels answer as soon as they were timed
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tune-soak-") as folder:
        for name in arguments.models:
            place = Path(folder, name)
            place.mkdir()
            with disk(place):
                os.environ["XDG_CACHE_HOME"] = os.environ["XDG_DATA_HOME"] = str(place)
                row = served(name, Path(folder), arguments.requests, arguments.threads, arguments.seed)
            print(json.dumps(row), flush=True)
            wrong += row["wrong or lost"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
