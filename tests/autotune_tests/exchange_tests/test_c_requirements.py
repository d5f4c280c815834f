"""Compilers know every feature of every processor that a C library may ask for."""

import shutil
import subprocess

import pytest

from autotune.artifact.directory import Artifact
from autotune.exchange import export_c as module
from autotune.exchange.c_requirements import cpu_needs
from autotune.host.compilers import cross_prefix
from autotune.host.machine import read_host
from schedules.processors import PROCESSORS
from schedules.target import Target
from schedules.templates.instructions.llvm_target import code_flags

PROGRAM = """#include <sys/auxv.h>
#include <stdio.h>
{cpuid}
{needs}
#define NEED(test, name) if (test) puts(name);
int main() {{ CPU_NEEDS(NEED) return 0; }}
"""


@pytest.mark.parametrize("name", [entry.name for entry in PROCESSORS])
def test_compilers_know_every_feature_that_is_asked_for(name, tmp_path):
    target = Target.cpu(name, 1)
    prefix = cross_prefix(target.architecture)
    if shutil.which(f"{prefix}g++") is None:
        pytest.skip(f"there is no {prefix}g++")
    artifact = Artifact(tmp_path, target, (), (), (), None, "", {}, cpu=code_flags(target))
    needs = cpu_needs(artifact)
    if target.architecture == "x86_64":
        assert all(f'"{flag}")' in needs for flag in artifact.cpu)
    template = (module.TEMPLATES / "library.cc.in").read_text()
    cpuid = template[template.index("bool cpuid_has") : template.index("#endif\n\n// The first")]
    cpuid = "" if prefix else f"#include <cpuid.h>\n{cpuid}"
    (tmp_path / "x.cc").write_text(PROGRAM.format(needs=needs, cpuid=cpuid))
    subprocess.check_call(
        [f"{prefix}g++", "-Wall", "-Wno-unused-function", "-Werror", tmp_path / "x.cc", "-o", tmp_path / "x"]
    )
    if not prefix:  # what the library finds of this CPU is what the kernel says of it
        assert (
            set(subprocess.check_output([tmp_path / "x"], text=True).split()) == set(artifact.cpu) & read_host().flags
        )
