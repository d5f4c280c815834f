"""The C++ compiler and the tools beside it, of this machine or of another architecture (a cross toolchain)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tvm.support import cc

from autotune.host.machine import is_foreign
from schedules.vocabulary.errors import InstallError, lines_of


def check_compiler() -> None:
    """Refuse to start where nothing could be linked.

    Raises:
        InstallError: if there is no C++ compiler.
    """
    if cc.get_cc() is None:
        raise InstallError("no C++ compiler was found to link kernels with; install g++ or clang, or name one in CXX")


SUMMARY = "collect2:"
"""Start of the line in which a compiler says that its linker failed, after the linker has said why."""


def compile_with(arguments: Sequence[str], architecture: str = "") -> None:
    """Run the C++ compiler of an architecture, which is this machine's unless another is named.

    Raises:
        InstallError: if there is none, or it fails, with the end of what it says.
    """
    run_tool(_compiler(architecture), arguments, "install g++ with binutils")


def compiler_identity(architecture: str = "") -> str:
    """The C++ compiler of an architecture as a text that changes when another version is installed.

    Raises:
        InstallError: if there is none.
    """
    name = _compiler(architecture)
    path = Path(shutil.which(name) or name).resolve()
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def run_binutils(name: str, arguments: Sequence[str], architecture: str = "") -> str:
    """Return the output of ``nm``, ``objcopy`` or the like for objects of an architecture.

    Raises:
        InstallError: if there is none, or it fails, with the end of what it says.
    """
    return run_tool(f"{cross_prefix(architecture)}{name}", arguments, "install binutils")


def run_tool(tool: str, arguments: Sequence[str], remedy: str) -> str:
    """Return the output of ``tool``.

    Raises:
        InstallError: if there is no such program, or it fails.
    """
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InstallError(f"{tool} was not found; {remedy}") from error
    if done.returncode:
        lines = lines_of(done.stderr) if done.stderr.strip() else [f"it ended with status {done.returncode}"]
        full = [line for line in lines if os.strerror(errno.ENOSPC) in line]
        reasons = full or [line for line in lines if not line.startswith(SUMMARY)] or lines
        raise InstallError(f"{tool} failed: {reasons[-1]}; {'free some disk space' if full else remedy}")
    return done.stdout


def cross_prefix(architecture: str) -> str:
    """Return the prefix of the names of the tools for an architecture; empty for this machine's own."""
    return f"{architecture}-linux-gnu-" if is_foreign(architecture) else ""


def _compiler(architecture: str) -> str:
    prefix = cross_prefix(architecture)
    if not prefix:
        check_compiler()
        return str(cc.get_cc())
    if shutil.which(f"{prefix}g++") is None:
        raise InstallError(
            f"{prefix}g++ was not found to link kernels for {architecture} with; install the cross compiler, on Debian "
            f"the package g++-{architecture}-linux-gnu"
        )
    return f"{prefix}g++"
