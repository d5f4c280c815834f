"""Loading compiled libraries, and the threads that their kernels run on."""

from __future__ import annotations

import os
from pathlib import Path

import tvm
import tvm_ffi

from autotune.host.machine import thread_cpus
from autotune.host.pages import new_spelling

ONE_CORE_PER_THREAD = -2
"""TVM's ``kSpecifyOneCorePerThread``."""


def set_threads(count: int) -> None:
    """Make the calling thread run kernels on ``count`` threads, pinned to a core each as far as there are cores.

    TVM's pools belong to the calling thread and cannot grow, so this comes before the thread's first kernel. TVM also
    pins the calling thread itself to those cores. That is undone here, because whatever else the thread does or starts
    must not be confined to them.
    """
    cpus = thread_cpus(count)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(ONE_CORE_PER_THREAD, len(cpus), [str(cpu) for cpu in cpus])
    if allowed is not None:
        os.sched_setaffinity(0, allowed)


def open_library(library: Path) -> tvm.runtime.Module:
    """Load the code in ``library`` as it is on disk now.

    For a path that it has loaded before, the system's loader returns the code of that time, even if the file was
    replaced since, as it is when a model is tuned again. So every load spells the path in a new way.
    """
    return tvm_ffi.load_module(new_spelling(library))  # tvm.runtime.load_module would spell it in the usual way
