"""Which installed packages we run on, and a refusal of the pairs that are known to crash.

apache-tvm loads apache-tvm-ffi's library into its own process; a pair that does not fit is a segmentation fault at the
first use, with no message. So the pair is read from package metadata and judged before anything imports TVM.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable

from schedules.vocabulary.errors import InstallError

DISTRIBUTION = "tune-compiler"
TESTED_TVM, TESTED_FFI = "0.27.0.post1", "0.1.14.post1"
REMEDY = f'run: pip install "apache-tvm=={TESTED_TVM}" "apache-tvm-ffi=={TESTED_FFI}"'
SHOWN = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "numpy")

_FIRST_BAD_FFI = "0.1.15.dev0"  # with 0.1.15.* the first TuneContext is a segmentation fault
_BAD_TVM = ((0, 25), (0, 26))  # break the same way, or do not import at all

logger = logging.getLogger(__name__)


def installed(name: str) -> str | None:
    """Version of the installed distribution ``name`` by its metadata (nothing is imported), or None."""
    from importlib import metadata  # takes 50 ms, which --help does not need

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_versions(version_of: Callable[[str], str | None] = installed) -> None:
    """Refuse to start on TVM and FFI packages that are known not to work together. Call before importing TVM.

    A pair that is neither tested nor known to be bad is let through with a logged warning.

    Args:
        version_of: distribution name → version, or None if it is not installed.

    Raises:
        InstallError: if either package is missing, unreadable, or the pair is known to be bad.
    """
    from packaging.version import InvalidVersion, Version  # as above

    tvm, ffi = version_of("apache-tvm"), version_of("apache-tvm-ffi")
    if tvm is None or ffi is None:
        missing = "apache-tvm" if tvm is None else "apache-tvm-ffi"
        raise InstallError(f"{missing} is not installed; {REMEDY}")
    try:
        tvm_version, ffi_version = Version(tvm), Version(ffi)
    except InvalidVersion as error:
        raise InstallError(f"apache-tvm {tvm} with apache-tvm-ffi {ffi}: {error}; {REMEDY}") from error
    if tvm_version.release[:2] in _BAD_TVM or ffi_version >= Version(_FIRST_BAD_FFI):
        raise InstallError(f"apache-tvm {tvm} with apache-tvm-ffi {ffi} is known to crash; {REMEDY}")
    if (tvm, ffi) != (TESTED_TVM, TESTED_FFI):
        logger.warning("apache-tvm %s with apache-tvm-ffi %s is untested; if it crashes, %s", tvm, ffi, REMEDY)


def describe(version_of: Callable[[str], str | None] = installed) -> str:
    """One line for ``tune --version``: ours, Python's, and those of the packages that decide results."""
    parts = [f"{name} {version_of(name) or 'not installed'}" for name in SHOWN]
    ours = version_of(DISTRIBUTION) or "not installed"
    return f"{DISTRIBUTION} {ours} (Python {platform.python_version()}, {', '.join(parts)})"
