"""The CUDA device of this machine, as a target."""

from __future__ import annotations

import shutil
import subprocess

from autotune.backends.cuda.driver import Driver
from schedules.target import Target
from schedules.vocabulary.errors import InstallError, MeasureError, UsageError

QUERY = ("--query-gpu=compute_cap", "--format=csv,noheader")
QUERY_TIMEOUT_S = 20.0


def device_target() -> Target:
    """The target of the first CUDA device: through the driver, else through nvidia-smi.

    Raises:
        UsageError: if there is none, with what to write instead.
    """
    try:
        driver = Driver()
        return Target.cuda(driver.arch, driver.attribute("MULTIPROCESSOR_COUNT"))
    except (InstallError, MeasureError) as error:
        arch = arch_from_smi()
        if arch is None:
            raise UsageError(
                f"--target cuda takes the device of this machine, and there is none ({error}); "
                """name one, such as --target '{"kind": "cuda", "arch": "sm_90"}' --no-device"""
            ) from error
        return Target.cuda(arch)


def arch_from_smi() -> str | None:
    """``sm_NN`` of the first device that nvidia-smi lists, None without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    lines = done.stdout.split()
    return f"sm_{lines[0].replace('.', '')}" if lines else None
