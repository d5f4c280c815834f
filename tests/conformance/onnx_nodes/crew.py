"""Cases in forked, killable processes: each costs a fork of a process that has TVM and the suite in memory."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

from tests.conformance.onnx_nodes.cases import Case
from tests.conformance.onnx_nodes.trial import Outcome

LIMIT_S = 60.0
LIMIT_BYTES = 8 << 30


def outcomes(cases: Sequence[Case], work: Callable[[Case], Outcome], jobs: int) -> Iterator[Outcome]:
    """The outcome of every case, as they end, ``jobs`` at a time."""
    context: Any = get_context("fork")
    gc.collect()
    gc.freeze()
    waiting = list(reversed(cases))
    running: dict[Connection, tuple[Any, Case, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(case, work, theirs))
            process.start()
            theirs.close()
            running[ours] = (process, case, time.perf_counter())
        ready = connection.wait(list(running), timeout=0.5)
        for pipe in list(running):
            process, case, began = running[pipe]
            elapsed = time.perf_counter() - began
            if pipe not in ready and elapsed < LIMIT_S:
                continue
            found = _collect(pipe, process, case, pipe in ready)
            del running[pipe]
            yield replace(found, seconds=round(elapsed, 2))


def _collect(pipe: Connection, process: Any, case: Case, ready: bool) -> Outcome:
    """What the process said, or what its silence says."""
    failed = Outcome(case.name, case.operator, "hang", f"not done after {LIMIT_S:.0f} s", bool(case.constants))
    try:
        if ready:
            failed = Outcome(**json.loads(pipe.recv_bytes()))
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        failed = replace(failed, kind="crash", message=f"the process died: {how}")
    process.kill()
    process.join()
    pipe.close()
    return failed


def _serve(case: Case, work: Callable[[Case], Outcome], pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pipe.send_bytes(json.dumps(work(case).to_data()).encode())
    pipe.close()
    os._exit(0)
