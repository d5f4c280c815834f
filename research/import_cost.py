"""``python -m research.import_cost FOLDER``: seconds and memory that importing a generated decoder takes, as JSON.

``--memory`` adds the largest sum, over this process and its fork, of what each would give back if it ended
(proportional set size), looked at every 50 ms while the model is imported once more. Pages of the model's file that the
import has mapped count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from pathlib import Path

import psutil

from autotune.host.machine import host_target
from autotune.importer.generation.guess import generation_shapes
from autotune.importer.guarded_import import import_model
from autotune.importer.import_worker import external_bytes
from autotune.options import Generation
from tests.models.language import HALF_BILLION, LANGUAGE, save_language

INTERVAL_S = 0.05


class PeakMemory:
    """Watches this process and its children while the body of a ``with`` runs.

    Attributes:
        peak: bytes.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(INTERVAL_S):
            self.peak = max(self.peak, sum(map(proportional, [own, *own.children(recursive=True)])))


def proportional(process: psutil.Process) -> int:
    """Bytes of a process, shared pages by equal shares; 0 if it has ended."""
    with contextlib.suppress(OSError, psutil.Error):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.import_cost", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="half_billion", choices=[*LANGUAGE, "half_billion"])
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true", help="import once more, and watch the memory")
    chosen = parser.parse_args()
    path = chosen.folder / f"{chosen.model}.onnx"
    if not path.exists():
        save_language(HALF_BILLION if chosen.model == "half_billion" else LANGUAGE[chosen.model](), path)
    shapes = generation_shapes(path, Generation(chosen.positions, (128,)))[-1]
    target = host_target(chosen.threads)
    began, cpu = time.perf_counter(), psutil.Process().cpu_times()
    import_model(path, shapes, target, generates=True)
    seconds, spent = time.perf_counter() - began, psutil.Process().cpu_times()
    figures = {
        "model_mib": (path.stat().st_size + external_bytes(path)) / 2**20,
        "seconds": seconds,
        "cpu_seconds": sum(spent[:4]) - sum(cpu[:4]),
    }
    if chosen.memory:  # another import: to add up the pages of both processes takes a second of CPU time per second
        with PeakMemory() as memory:
            import_model(path, shapes, target, generates=True)
        figures["peak_mib"] = memory.peak / 2**20
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
