"""A library of made-up kernels."""

import subprocess
from pathlib import Path

import pytest
from tvm.support import cc
from tvm_ffi import libinfo

from autotune.backends.cpu.linking import link_kernels
from autotune.backends.cpu.native_library import NativeLibrary


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fakes")
    source = Path(__file__).with_name("fake_kernels.cc")
    command = [cc.get_cc(), "-O2", "-std=c++17", "-fPIC", f"-I{libinfo.find_include_path()}", "-c", str(source)]
    subprocess.run([*command, "-o", str(folder / "kernels.o")], check=True)
    link_kernels({"fakes": folder / "kernels.o"}, folder / "fakes.so")
    return NativeLibrary(folder / "fakes.so")
