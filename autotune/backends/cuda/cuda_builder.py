"""Kernels → machine code, in a child process that can be killed: ``python -m autotune.backends.cuda.cuda_builder JOB``.

A job is a JSON file: the target, where to write, and per kernel its symbol, its program and the configs to try, best
first. The child takes the first config of each kernel that compiles without local memory (registers that spilled, or
arrays that could not be kept in registers), and writes

    LIBRARY          all chosen kernels with the cubin inside, as TVM loads it
    ANSWER           per symbol its config, what ptxas made of its kernels, and why configs before it were passed over
    SOURCES/SYMBOL.cu   the CUDA source, if the job asks for it
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from autotune.backends.cuda.cubin import Kernel
from autotune.backends.cuda.nvrtc import check_nvrtc, nvrtc_for
from autotune.backends.cuda.stub import has_driver, make_stub
from autotune.measure.kernel_builder import last_words
from schedules.config import Config
from schedules.errors import MeasureError, ScheduleError
from schedules.lower import load_program, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices

SECONDS_PER_CONFIG = 30.0
"""A kernel compiles in 0.3 to 2 s; some legal ones take much longer, and none is worth this."""


@dataclass(frozen=True)
class Wanted:
    """One kernel to build.

    Attributes:
        symbol: its function's name in the library.
        program: normalised PrimFunc as JSON text.
        configs: what to try, best first.
    """

    symbol: str
    program: str
    configs: tuple[Config, ...]


@dataclass(frozen=True)
class Chosen:
    """What became of one.

    Attributes:
        config: the config that was taken.
        kernels: its device kernels.
        passed_over: (config as JSON, why not) of those tried before.
        compile_s: seconds that went into it.
    """

    config: Config
    kernels: tuple[Kernel, ...]
    passed_over: tuple[tuple[str, str], ...] = ()
    compile_s: float = 0.0

    @property
    def local_bytes(self) -> int:
        """Local memory of its worst kernel."""
        return max((kernel.local_bytes for kernel in self.kernels), default=0)


def build_kernels(
    wanted: Sequence[Wanted], target: Target, library: Path | None, sources: Path | None = None
) -> dict[str, Chosen]:
    """Build ``wanted`` in a child process.

    Args:
        library: where to write the shared library; None only compiles and inspects.
        sources: folder for the CUDA sources.

    Raises:
        InstallError: if the compiler is missing.
        MeasureError: if a kernel compiles in no config, or the child had to be killed.
    """
    check_nvrtc()
    with tempfile.TemporaryDirectory(prefix="tune-cuda-") as name:
        folder = Path(name)
        job = {
            "target": target.to_json(),
            "library": None if library is None else str(library.resolve()),
            "sources": None if sources is None else str(sources.resolve()),
            "answer": str(folder / "answer.json"),
            "wanted": [[w.symbol, w.program, [c.to_json() for c in w.configs]] for w in wanted],
        }
        (folder / "job.json").write_text(json.dumps(job))
        _run_child(folder, SECONDS_PER_CONFIG + sum(SECONDS_PER_CONFIG for _ in wanted))
        answer = json.loads((folder / "answer.json").read_text())
    if "error" in answer:
        raise MeasureError(str(answer["error"]))
    return {symbol: _chosen(item) for symbol, item in answer["chosen"].items()}


def _run_child(folder: Path, timeout_s: float) -> None:
    variables = [f"PYTHONPATH={':'.join(path for path in sys.path if path)}"]
    if not has_driver():
        variables.append(f"LD_LIBRARY_PATH={make_stub(folder)}")
    command = [
        shutil.which("env") or "/usr/bin/env",
        *variables,
        sys.executable,
        "-m",
        "autotune.backends.cuda.cuda_builder",
    ]
    try:
        done = subprocess.run(
            [*command, str(folder / "job.json")], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(f"compiling CUDA kernels took more than {timeout_s:.0f} s and was stopped") from error
    if not (folder / "answer.json").exists():
        words = " ".join(done.stderr.split()[-60:]) or f"exit code {done.returncode}"
        raise MeasureError(f"the process that compiles CUDA kernels died: {words[-400:]}")


def _chosen(item: dict[str, Any]) -> Chosen:
    kernels = tuple(Kernel(**fields) for fields in item["kernels"])
    passed_over = tuple((str(config), str(why)) for config, why in item["passed_over"])
    return Chosen(Config.from_json(item["config"]), kernels, passed_over, float(item["compile_s"]))


# -- the child -------------------------------------------------------------------------------------------------------


def _scheduled(symbol: str, program: tirx.PrimFunc, config: Config, target: Target) -> tirx.PrimFunc:
    return exact_indices(lower(program, config, target).mod["main"]).with_attr("global_symbol", symbol)


def _try(symbol: str, text: str, configs: Sequence[Config], target: Target, sources: Path | None) -> Chosen:
    """The first config that needs no local memory; else the one that needs least."""
    program = load_program(text)
    passed_over: list[tuple[str, str]] = []
    best: Chosen | None = None
    began = time.perf_counter()
    for config in configs:
        try:
            func = _scheduled(symbol, program, config, target)
            with nvrtc_for(target.arch) as compiled:
                tvm.compile(tvm.IRModule({symbol: func}), target=tvm_target(target))
        except Exception as error:  # whatever a candidate provokes is its failure, not the job's
            passed_over.append((config.to_json(), last_words(error)))
            continue
        kernels = tuple(compiled.kernels.values())
        found = Chosen(config, kernels, tuple(passed_over), time.perf_counter() - began)
        if sources is not None:
            (sources / f"{symbol}.cu").write_text("\n".join(compiled.sources))
        if not found.local_bytes:
            return found
        passed_over.append((config.to_json(), f"{found.local_bytes} bytes of local memory"))
        if best is None or found.local_bytes < best.local_bytes:
            best = found
    if best is None:
        raise ScheduleError(f"kernel {symbol} compiles in none of {len(configs)} configs: {passed_over[-1][1]}")
    return best


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    target = Target.from_json(job["target"])
    sources = None if job["sources"] is None else Path(job["sources"])
    chosen = {}
    for symbol, text, configs in job["wanted"]:
        chosen[symbol] = _try(symbol, text, [Config.from_json(config) for config in configs], target, sources)
    if job["library"] is not None:
        functions = {
            symbol: _scheduled(symbol, load_program(text), chosen[symbol].config, target)
            for symbol, text, _ in job["wanted"]
        }
        with nvrtc_for(target.arch):
            tvm.compile(tvm.IRModule(functions), target=tvm_target(target)).export_library(job["library"])
    return {
        "chosen": {
            symbol: {
                "config": item.config.to_json(),
                "kernels": [asdict(kernel) for kernel in item.kernels],
                "passed_over": item.passed_over,
                "compile_s": item.compile_s,
            }
            for symbol, item in chosen.items()
        }
    }


def main() -> None:
    """Entry point of the child."""
    job = json.loads(Path(sys.argv[1]).read_text())
    try:
        answer = _answer(job)
    except ScheduleError as error:
        answer = {"error": str(error)}
    part = Path(f"{job['answer']}.part")
    part.write_text(json.dumps(answer))
    part.rename(job["answer"])


if __name__ == "__main__":
    main()
