"""The CUDA devices of this machine, as targets."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from autotune.backends.cuda.driver import Driver
from autotune.host.devices import cuda_devices
from schedules.target import Target
from schedules.vocabulary.errors import InstallError, MeasureError, UsageError

QUERY = ("--query-gpu=compute_cap", "--format=csv,noheader")
QUERY_TIMEOUT_S = 20.0


def device_target(typed: str = "--target cuda") -> Target:
    """The target of the first CUDA device: through the driver, else through nvidia-smi.

    Args:
        typed: what asks for it, for messages.

    Raises:
        UsageError: if there is none, with what to write instead.
    """
    try:
        return _target(Driver())
    except (InstallError, MeasureError) as error:
        arch = arch_from_smi()
        if arch is None:
            raise UsageError(
                f"{typed} takes the device of this machine, and there is none ({error}); "
                """name one, with --target '{"kind": "cuda", "arch": "sm_90"}' --no-device"""
            ) from error
        return Target.cuda(arch)


def device_targets(lanes: str, names: Sequence[str]) -> tuple[Target, ...]:
    """Return the targets of the devices ``names``, such as ``cuda:1``.

    Args:
        lanes: ``--lanes`` as typed, for messages.

    Raises:
        UsageError: if one is not in this machine.
    """
    ordinals = [ordinal_of(name) for name in names]
    if any(ordinals):
        check_present(lanes, names)
    return tuple(
        _target(Driver(ordinal=ordinal)) if ordinal else device_target(f"--lanes {lanes}") for ordinal in ordinals
    )


def check_present(lanes: str, names: Sequence[str]) -> None:
    """Check that the devices ``names`` are in this machine.

    Raises:
        UsageError: if one is not, with those that are.
    """
    present = present_devices()
    missing = [name for name in names if name not in present]
    if missing:
        raise UsageError(
            f"--lanes {lanes}: this machine has no {missing[0]}, it has {', '.join(present) or 'none'}; name one of "
            "these, or give --target and --no-device"
        )


def present_devices() -> list[str]:
    """Return the names of the CUDA devices that TVM can use, in order."""
    return [f"cuda:{ordinal}" for ordinal in range(len(cuda_devices()))]


def ordinal_of(name: str) -> int:
    """Return the number of a device: 1 for ``cuda:1``."""
    return int(name.partition(":")[2] or 0)


def measuring_device(target: Target) -> str:
    """Return the device that kernels for ``target`` are measured on.

    The first that is the target, else the first of its architecture, else the first.
    """
    present = present_devices()
    if len(present) < 2:
        return "cuda:0"
    own = {name: _target(Driver(ordinal=ordinal_of(name))) for name in present}
    same = [name for name in present if own[name] == target]
    return (same or [name for name in present if own[name].arch == target.arch] or present)[0]


def _target(driver: Driver) -> Target:
    return Target.cuda(driver.arch, driver.attribute("MULTIPROCESSOR_COUNT"))


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
