"""A stand-in for the CUDA driver, so that kernels compile and libraries load where there is none.

TVM's CUDA runtime library needs ``libcuda.so.1`` to load; without it TVM writes source instead of machine code, and
says nothing. The stand-in answers every call with CUDA_ERROR_NO_DEVICE. It is made in a temporary folder, for child
processes only, never shipped, and never used where there is a real driver.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import tvm
from tvm.support import cc

from schedules.vocabulary.errors import InstallError

DRIVER = "libcuda.so.1"
NO_DEVICE = 100
TEXTS = ("cuGetErrorName", "cuGetErrorString")


def has_driver() -> bool:
    """Return whether this process can load the CUDA driver (the stand-in counts, where it is on the library path)."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def make_stub(folder: Path) -> Path:
    """Write the stand-in into ``folder``, unless it is there; it belongs on ``LD_LIBRARY_PATH`` of a child process.

    Raises:
        InstallError: if there is no C compiler, or TVM was built without CUDA.
    """
    if (folder / DRIVER).exists():
        return folder
    runtime = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    compiler = cc.get_cc()
    if compiler is None or not runtime.exists():
        missing = "a C++ compiler" if compiler is None else f"TVM's CUDA runtime ({runtime.name})"
        raise InstallError(f"{missing} is missing, which compiling for CUDA without a driver needs; install it")
    listing = subprocess.run(["nm", "-D", "--undefined-only", str(runtime)], check=True, capture_output=True, text=True)
    names = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
    names = {name for name in names if name.startswith("cu") and name[2].isupper()}
    names |= {"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2"}
    lines = [f'extern "C" int {name}() {{ return {NO_DEVICE}; }}' for name in sorted(names - set(TEXTS))]
    lines += [
        f'extern "C" int {name}(int, const char **text) {{ *text = "no CUDA driver"; return 0; }}' for name in TEXTS
    ]
    source = folder / "stub.cc"
    source.write_text("\n".join(lines) + "\n")
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-o", str(folder / DRIVER), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder
