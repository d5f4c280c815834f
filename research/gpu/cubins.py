"""``python -m research.gpu.cubins [MODEL…] [--arch sm_90] [--precision tf32]``: GPU kernels, inspected without a GPU.

Every model is built with ``tune run --no-device`` from the templates' own guesses, for every architecture, and then

    loads        a fresh process loads the library and finds every kernel that the model calls
    arch         every piece of machine code in the library is for the architecture that was asked for
    local        how many kernels use local memory: registers that were spilled, or arrays that are indexed
    unmatched    kernels that no template claims, so that they run untuned
    tensor       least share of tensor cores' instructions in the loop of a kernel that has any

One line per model and architecture; the exit code is 1 if one does not build, load, or match its architecture, or has a
kernel with local memory. Nothing is run: this says nothing about results or speed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.artifact.directory import read_artifact
from autotune.backends.cuda.cubin import Kernel, inspect
from autotune.backends.cuda.stub import has_driver, make_stub
from research.gpu.opcodes import opcodes, tensor_share
from schedules.lower import BASELINE
from schedules.vocabulary.errors import ArtifactError
from tests.models.catalog import cached
from tests.models.light import LIGHT

MODELS = (*LIGHT, "encoder", "encoder_bf16")
ARCHS = ("sm_80", "sm_90")
ELF = b"\x7fELF"

LOAD = """
import sys
import tvm  # registers what loads CUDA code
import tvm_ffi
from autotune.artifact.directory import read_artifact
artifact = read_artifact(__import__("pathlib").Path(sys.argv[1]))
library = tvm_ffi.load_module(str(artifact.library))
symbols = {call.symbol for call in artifact.steps.calls}
assert symbols and all(library.implements_function(symbol, True) for symbol in symbols)
print(len(symbols))
"""


@dataclass(frozen=True)
class Row:
    """What was found of one model for one architecture.

    Attributes:
        tasks: different kernels of the model.
        unmatched: of them, those that run untuned.
        functions: device functions in the library; a task may need several.
        archs: architectures of the machine code.
        local: device functions with local memory.
        registers: of the function that needs most.
        loaded: kernels found in the library by a fresh process.
        tensor: least share of tensor cores' instructions in the loop of a function that has any; 0 if none has.
        error: why there is nothing else, if something failed.
    """

    model: str
    arch: str
    tasks: int = 0
    unmatched: int = 0
    functions: int = 0
    archs: tuple[str, ...] = ()
    local: int = 0
    registers: int = 0
    loaded: int = 0
    tensor: float = 0.0
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong that can be seen."""
        return not self.error and self.archs == (self.arch,) and not self.local and self.loaded == self.tasks > 0

    def __str__(self) -> str:
        head = f"{self.model:14} {self.arch}"
        if self.error:
            return f"{head}  FAILED: {self.error}"
        verdict = "ok" if self.passed else "WRONG"
        return (
            f"{head}  {self.tasks:4} {self.functions:9} {'+'.join(self.archs):>6} {self.loaded:6} {self.local:5}"
            f" {self.registers:9} {self.unmatched:9} {self.tensor:6.2f} {self.seconds:7.0f}  {verdict}"
        )


HEAD = "model          arch   tasks functions   code loaded local registers unmatched tensor seconds"


def build(model: Path, arch: str, folder: Path, precision: str) -> Path:
    """The artifact that ``tune run --no-device`` makes.

    Raises:
        ArtifactError: with what it said, if it made none.
    """
    out = folder / f"{model.stem}-{arch}.tuned"
    target = json.dumps({"kind": "cuda", "arch": arch})
    options = ["--target", target, "--no-device", "--out", str(out), "--log", str(folder / "log.db"), "--quiet"]
    command = [sys.executable, "-m", "autotune", "run", str(model), "--precision", precision, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArtifactError(done.stderr.strip()[-300:])
    return out


def load(artifact: Path) -> int:
    """Kernels found in the artifact's library by a fresh process.

    Raises:
        ArtifactError: if it does not load or lacks one.
    """
    with tempfile.TemporaryDirectory() as stub:
        environment = dict(os.environ)
        if not has_driver():
            environment["LD_LIBRARY_PATH"] = str(make_stub(Path(stub)))
        command = [sys.executable, "-c", LOAD, str(artifact)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArtifactError(done.stderr.strip()[-300:])
    return int(done.stdout)


def cubins_of(library: Path) -> Iterator[bytes]:
    """A library's bytes from each embedded ELF file on; some of these files are cubins."""
    data = library.read_bytes()
    at = data.find(ELF, 1)  # at 0 it is the library's own
    while at >= 0:
        yield data[at:]
        at = data.find(ELF, at + 1)


def machine_code(library: Path) -> Iterator[Kernel]:
    """Every device function in the cubins that a library embeds, whatever its manifest says."""
    for cubin in cubins_of(library):
        with suppress(ArtifactError):  # an ELF of another kind
            yield from inspect(cubin).values()


def tensor_shares(library: Path) -> Iterator[float]:
    """``tensor_share`` of every device function that has tensor cores' instructions."""
    for cubin in cubins_of(library):
        with suppress(ArtifactError):
            yield from filter(None, map(tensor_share, opcodes(cubin).values()))


def row(model: str, arch: str, folder: Path, precision: str = "fp32") -> Row:
    """Build one model for one architecture and look at what came out."""
    began = time.perf_counter()
    try:
        path = build(cached(model), arch, folder, precision)
        loaded = load(path)
    except ArtifactError as error:
        return Row(model, arch, error=str(error))
    artifact = read_artifact(path)
    code = list(machine_code(artifact.library))
    return Row(
        model,
        arch,
        len(artifact.plan.choices),
        sum(choice.config == BASELINE for choice in artifact.plan.choices),
        len(code),
        tuple(sorted({kernel.arch for kernel in code})),
        sum(kernel.local_bytes > 0 for kernel in code),
        max((kernel.registers for kernel in code), default=0),
        loaded,
        min(tensor_shares(artifact.library), default=0.0),
        time.perf_counter() - began,
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m research.gpu.cubins", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--arch", action="append", help="may be repeated; default sm_80 and sm_90")
    parser.add_argument("--precision", default="fp32", help="as of tune run")
    parser.add_argument("--out", type=Path, default=Path("build/cubins"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    rows = []
    for model in arguments.models:
        for arch in arguments.arch or ARCHS:
            rows.append(row(model, arch, arguments.out, arguments.precision))
            print(rows[-1], flush=True)
            (arguments.out / "cubins.json").write_text(json.dumps([asdict(result) for result in rows], indent=1))
    print(f"{sum(result.passed for result in rows)} of {len(rows)} passed")
    return 0 if all(result.passed for result in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
