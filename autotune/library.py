"""Program + Plan → a shared library that the Relax virtual machine runs.

Compiling can hang (a legal kernel was seen to compile for more than 90 s), so the build runs in a child process
that is killed when it is over time. The child is this module; the job crosses as a folder with JSON files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule

from autotune.importer.program import Program
from schedules.errors import ArtifactError
from schedules.lower import tvm_target
from schedules.target import Target

BUILD_TIMEOUT_S = 600.0

# What compile_relax would add needs passes that the CPU backend does not have; this list is what works after FuseTIR.
VM_PASSES = (
    "RewriteDataflowReshape",
    "ToNonDataflow",
    "RemovePurityChecking",
    "CallTIRRewrite",
    "StaticPlanBlockMemory",
    "LowerAllocTensor",
    "KillAfterLastUse",
    "LowerRuntimeBuiltin",
    "ComputePrimValue",
    "VMShapeLower",
    "AttachGlobalSymbol",
)


def compile_module(module: IRModule, target: Target, library: Path) -> None:
    """Lower a scheduled module through the virtual machine and write ``library``."""
    native = tvm_target(target)
    with native, tvm.transform.PassContext(opt_level=3):
        for name in VM_PASSES:
            module = getattr(relax.transform, name)()(module)
        executable = tvm.relax.vm_build.build(module, target=native, relax_pipeline=None)
    executable.export_library(str(library))


def build_library(program: Program, target: Target, library: Path, timeout_s: float = BUILD_TIMEOUT_S) -> None:
    """Write ``library`` from a child process.

    Raises:
        ArtifactError: if the child fails or takes more than ``timeout_s`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="tune-build-") as folder:
        job = Path(folder)
        (job / "module.json").write_text(tvm.ir.save_json(program.module))
        (job / "target.json").write_text(target.to_json())
        command = [sys.executable, "-m", "autotune.library", str(job), str(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ArtifactError(
                f"building took more than {timeout_s:.0f} s and was stopped; re-tune with another --seed"
            ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ArtifactError(f"the build failed (exit {done.returncode}): {last}")


def _main(job: Path, library: Path) -> None:
    module = tvm.ir.load_json((job / "module.json").read_text())
    compile_module(module, Target.from_json((job / "target.json").read_text()), library)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
