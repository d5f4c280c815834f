"""``tune export --format c``: an artifact as a C library with its header, weights, build files, examples and self-test.

The library holds the kernels and the core that sessions run too (``backends/cpu/core.cc``). What it knows of the model
is generated as C tables; its functions are in ``c_library/library.cc.in``.

    include/NAME.h              the interface
    lib/libNAME.so              needs the C library alone
    lib/NAME.weights            mapped when a model is opened
    lib/pkgconfig/NAME.pc, lib/cmake/NAME/NAMEConfig.cmake
    examples/NAME.c, NAME.py    a run in C, and in Python by ctypes without this program
    selftest/selftest.c, selftest, NAME.cases
                                runs what this machine recorded, and tries what has to be refused
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from autotune.artifact.composite import Composite, read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import KERNELS, SEGMENTS, WEIGHTS, kind_of, read_manifest
from autotune.artifact.replacement import new_folder
from autotune.artifact.weights_file import MAPPED_BYTES
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import (
    CORE,
    CORE_OPTIONS,
    SHARED,
    merged_object,
)
from autotune.backends.cpu.program_words import program_words
from autotune.exchange.c_names import default_name, unusable
from autotune.exchange.c_requirements import cpu_needs
from autotune.frame.noise import is_live
from autotune.graph.steps import Steps
from autotune.host.compilers import compile_with, run_binutils
from autotune.host.dtypes import numpy_type
from autotune.host.machine import is_foreign
from autotune.importer.load import load_model
from autotune.interface import TensorSpec
from autotune.runtime.session import InferenceSession
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.bench import find_model
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import ArtifactError, UsageError

TEMPLATES = Path(__file__).with_name("c_library")

HEADER_BYTES = 4096
"""Bytes before the weights in their file, a page: they begin at a page's boundary."""

BLOCK_BYTES = 32
"""Bytes that the hash of the file of weights takes at once; the file is padded to a multiple."""

HOOK_SYMBOLS = "__TVMBackend*"
"""Pointers in kernels that the core fills: they stay visible, so that the linker joins those of all objects."""

CASES = 3
"""Recorded runs of each set of shapes."""

SELFTEST_OPTIONS = ("-O2", "-std=gnu11", "-pthread", "-static-libgcc", "-Wl,--as-needed")


@dataclass(frozen=True)
class Part:
    """One set of shapes.

    Attributes:
        weights: byte offset of every weight in the artifact's file.
    """

    artifact: Artifact
    weights: tuple[int, ...]

    @property
    def steps(self) -> Steps:
        """The steps that the library runs."""
        return self.artifact.steps

    @property
    def cores(self) -> int:
        """Cores that its lanes speak of; 0 where its calls run on all threads."""
        return max((lane.first + lane.threads for lane in self.steps.lanes), default=0)

    @property
    def libraries(self) -> dict[int, Path]:
        """Threads of a lane → the library with its kernels."""
        return {self.artifact.target.threads: self.artifact.library, **self.artifact.lane_libraries}

    @cached_property
    def threads_of_calls(self) -> list[int]:
        """For every call the key of its library in ``libraries``."""
        lanes, own = self.steps.lanes, self.artifact.target.threads
        if not lanes:
            return [own] * len(self.steps.calls)
        return [lanes[group.lane].threads for group in self.steps.groups for _ in range(group.calls)]


def export_c(artifact: str | Path, out: str | Path, name: str | None = None) -> Path:
    """Write the artifact, which is native code that you have to trust, as a C library to the folder ``out``.

    Args:
        name: of the library and of all its functions; None takes the artifact's, after ``model_`` where C does not
            take that.

    Raises:
        ArtifactError: if it cannot be read, runs on more than CPU kernels, or ``out`` is not empty or not writable.
        InstallError: if there is no C++ compiler.
        UsageError: if ``name`` is no name in C, or functions of the system or of the core have such names.
    """
    artifact, out = Path(artifact), Path(out)
    name = name or default_name(artifact)
    if reason := unusable(name):
        raise UsageError(f"--name {name}: {reason}; give another of letters, digits and underscores")
    parts = _parts(artifact)
    with new_folder(out) as folder:
        _write(_Export(artifact, parts, name), folder)
    return out


def _parts(path: Path) -> list[Part]:
    """The sets of shapes of the artifact at ``path``.

    Raises:
        ArtifactError: if C alone cannot run it.
    """
    if kind_of(path) == KERNELS:
        artifact = read_artifact(path)
        offsets = [int(entry["offset"]) for entry in read_manifest(path)["weights"]]
        parts = [Part(artifact, tuple(offsets))]
    else:
        composite = read_composite(path)
        if composite.kind == SEGMENTS:
            raise ArtifactError(
                f"{path} has fallback partitions, which need ONNX Runtime: it cannot become a C library"
            )
        parts = [Part(composite.open(part), _offsets(composite, part.weights)) for part in _widest(composite)]
    for part in parts:
        own = part.artifact
        if not backend_of(own.target).has_lanes or own.device_parts:
            raise ArtifactError(f"{path} runs on a GPU: it cannot become a C library; tune it with --target host")
        if own.caches:
            raise ArtifactError(
                f"{path} keeps its caches in place, which C libraries do not yet; tune the model without --generate"
            )
        if own.frame is not None:
            raise ArtifactError(
                f"{path} has sequences, strings or sizes that depend on data, which a session deals with in NumPy: it "
                "cannot become a C library"
            )
        for library in part.libraries.values():
            if own.steps.calls and not merged_object(library).is_file():
                raise ArtifactError(f"{path} has no {merged_object(library).name}; renew it with 'tune build MODEL'")
    return parts


def _widest(composite: Composite) -> list[Any]:
    """Return the parts for the most threads: a C library's streams all run the same kernels."""
    threads = max(part.threads for part in composite.parts)
    return [part for part in composite.parts if part.threads == threads]


def _offsets(composite: Composite, numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(composite.entries[number]["offset"]) for number in numbers)


@dataclass(frozen=True)
class _Export:
    path: Path
    parts: list[Part]
    name: str

    @property
    def architecture(self) -> str:
        """The architecture of its processor, as ``Target.architecture``."""
        return self.parts[0].artifact.target.architecture

    @property
    def identity(self) -> str:
        """The hash that ties the library to its file of weights."""
        return str(read_manifest(self.path)["sha256"].get(WEIGHTS, ""))

    def fill(self, template: str) -> str:
        """A template with this library's name."""
        text = (TEMPLATES / template).read_text()
        return text.replace("@name@", self.name).replace("@NAME@", self.name.upper())


def _write(export: _Export, out: Path) -> None:
    name = export.name
    for folder in ("include", "lib/pkgconfig", f"lib/cmake/{name}", "examples", "selftest"):
        (out / folder).mkdir(parents=True)
    (out / "include" / f"{name}.h").write_text(export.fill("library.h.in"))
    (out / "lib/pkgconfig" / f"{name}.pc").write_text(export.fill("library.pc.in"))
    (out / "lib/cmake" / name / f"{name}Config.cmake").write_text(export.fill("config.cmake.in"))
    (out / "examples" / f"{name}.c").write_text(export.fill("example.c.in"))
    (out / "examples" / f"{name}.py").write_text(export.fill("example.py.in"))
    (out / "selftest/selftest.c").write_text(export.fill("selftest.c.in"))
    weights_hash = _write_weights(export, out / "lib" / f"{name}.weights")
    with tempfile.TemporaryDirectory(prefix="tune-export-") as folder:
        _link(export, Path(folder), out, weights_hash)
    write_cases(out / "selftest" / f"{name}.cases", _recorded(export))
    link = [f"-L{out / 'lib'}", f"-l{name}", "-lm", "-Wl,-rpath,$ORIGIN/../lib", "-o", str(out / "selftest/selftest")]
    source = ["-x", "c", str(out / "selftest/selftest.c"), "-x", "none"]
    compile_with([*SELFTEST_OPTIONS, f"-I{out / 'include'}", *source, *link], export.architecture)


def _write_weights(export: _Export, path: Path) -> str:
    """Write the file of weights, of a size that is a multiple of ``BLOCK_BYTES``; its hash, as C has it."""
    source, hashed = export.path / WEIGHTS, xxhash.xxh64()
    with path.open("wb") as stream:

        def add(content: bytes) -> None:
            stream.write(content)
            hashed.update(content)

        add(export.identity.encode().ljust(HEADER_BYTES, b"\0"))
        if source.is_file():
            with source.open("rb") as weights:
                while block := weights.read(1 << 20):
                    add(block)
        add(b"\0" * (-stream.tell() % BLOCK_BYTES))
    return f"0x{hashed.hexdigest()}"


def _link(export: _Export, folder: Path, out: Path, weights_hash: str) -> None:
    """Compile and link the library."""
    name = export.name
    objects = [
        str(_renamed(library, f"k{number}_{threads}_", folder, export.architecture))
        for number, threads, library in _objects(export)
    ]
    (folder / "model_data.h").write_text("\n".join(_tables(export, weights_hash)))
    (folder / "model_kernels.h").write_text("\n".join(_declarations(export)) + "\n")
    (folder / "library.cc").write_text(export.fill("library.cc.in"))
    script = folder / "symbols"
    script.write_text(f"{name.upper()}_1 {{\n  global: {name}_*;\n  local: *;\n}};\n")
    flags = [*CORE_OPTIONS, "-fvisibility=hidden", f"-I{CORE.parent}", f"-I{out / 'include'}", *SHARED, "-s"]
    linker = [f"-Wl,--version-script={script}", f"-Wl,-soname,lib{name}.so", "-Wl,-z,relro", "-Wl,--gc-sections"]
    library = out / "lib" / f"lib{name}.so"
    compile_with([*flags, *linker, str(folder / "library.cc"), *objects, "-o", str(library)], export.architecture)


def _objects(export: _Export) -> Iterator[tuple[int, int, Path]]:
    """Part, threads and path of every object with kernels."""
    for number, part in enumerate(export.parts):
        for threads in sorted(set(part.threads_of_calls)):
            yield number, threads, merged_object(part.libraries[threads])


def _renamed(source: Path, prefix: str, folder: Path, architecture: str) -> Path:
    """A copy of the object in which kernels have names of their own: those of several parts meet in one library."""
    renamed = folder / f"{prefix}.o"
    names = folder / f"{prefix}.names"
    symbols = [
        line.split()[-1]
        for line in run_binutils("nm", ["--defined-only", "-g", str(source)], architecture).splitlines()
    ]
    kernels = [symbol for symbol in symbols if symbol.startswith("__tvm_ffi_tune_")]
    names.write_text("".join(f"{symbol} {prefix}{symbol.removeprefix('__tvm_ffi_')}\n" for symbol in kernels))
    run_binutils("objcopy", [f"--redefine-syms={names}", str(source), str(renamed)], architecture)
    kept = [f"--keep-global-symbol={pattern}" for pattern in (f"{prefix}*", HOOK_SYMBOLS)]
    run_binutils("objcopy", ["-w", *kept, str(renamed)], architecture)
    return renamed


def _tables(export: _Export, weights_hash: str) -> Iterator[str]:
    """Lines of ``model_data.h``."""
    first = export.parts[0].artifact
    weights = export.path / WEIGHTS
    yield f'const char IDENTITY[] = "{export.identity}";'
    size = weights.stat().st_size if weights.is_file() else 0
    yield f"const size_t WEIGHTS_BYTES = {size + -size % BLOCK_BYTES};"
    yield f"const uint64_t WEIGHTS_HASH = {weights_hash};"
    yield f"const size_t MAPPED_BYTES = {MAPPED_BYTES};"
    yield f"const int64_t THREADS = {first.target.threads};"
    yield cpu_needs(first)
    yield f"#define NEEDS_TILES {int('amx_tile' in first.cpu)}"
    inputs = len(_given(first))
    yield f"const size_t INPUTS = {inputs}, OUTPUTS = {len(first.outputs)}, TOLD = {len(first.inputs) - inputs};"
    told = [_bytes(spec) for part in export.parts for spec in part.artifact.inputs if is_live(spec.name)]
    yield f"const size_t TOLD_BYTES = {max(told, default=1)};"
    for number, part in enumerate(export.parts):
        sizes = [size for size in map(_bytes, part.artifact.inputs) if size]
        yield f"const int64_t words_{number}[] = {_array(program_words(part.steps, sizes).tolist())};"
        addresses = [f"(void*)&{kernel}" for kernel in _kernels(number, part)]
        yield f"void* const kernels_{number}[] = {_array(addresses)};"
        yield f"const int64_t weights_{number}[] = {_array(part.weights)};"
        specs = (*_given(part.artifact), *part.artifact.outputs)
        for index, spec in enumerate(specs):
            yield f"const int64_t shape_{number}_{index}[] = {_array(spec.shape)};"
        tensors = [
            f'{{{_text(spec.name)}, "{spec.dtype}", {_bytes(spec)}, {len(spec.shape)}, shape_{number}_{index}}}'
            for index, spec in enumerate(specs)
        ]
        yield f"const Tensor_ tensors_{number}[] = {_array(tensors)};"
    parts = [
        f"{{words_{n}, kernels_{n}, weights_{n}, {len(part.weights)}, {part.cores}, tensors_{n}}}"
        for n, part in enumerate(export.parts)
    ]
    yield f"const Part PARTS[] = {_array(parts)};"


def _given(artifact: Artifact) -> list[TensorSpec]:
    """The inputs that a caller gives. Those behind them say of every position that it counts."""
    return [spec for spec in artifact.inputs if not is_live(spec.name)]


def _kernels(number: int, part: Part) -> list[str]:
    """Symbol of the kernel of every call."""
    pairs = zip(part.threads_of_calls, part.steps.calls, strict=True)
    return [f"k{number}_{threads}_{step.symbol}" for threads, step in pairs]


def _declarations(export: _Export) -> Iterator[str]:
    """Lines of ``model_kernels.h``."""
    for kernel in sorted({kernel for number, part in enumerate(export.parts) for kernel in _kernels(number, part)}):
        yield f'extern "C" __attribute__((visibility("hidden"))) int {kernel}(void);'


def _array(items: Sequence[Any]) -> str:
    """An initialiser, never empty: C has no empty arrays."""
    return "{" + ", ".join(map(str, items or [0])) + "}"


def _text(value: str) -> str:
    """A string literal."""
    return (
        '"'
        + "".join(
            f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte) for byte in value.encode()
        )
        + '"'
    )


def _bytes(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64)) * numpy_type(spec.dtype).itemsize


def _recorded(export: _Export) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Set of shapes, then inputs and outputs, of ``CASES`` runs each.

    This machine runs the artifact, or, for a processor of another architecture, the reference engine runs the model.
    """
    session = None if is_foreign(export.architecture) else InferenceSession(export.path)
    for number, part in enumerate(export.parts):
        own = part.artifact
        run = _reference_run(own) if session is None else partial(session.run, None)
        for seed in range(CASES):
            feed = random_inputs(_given(own), seed)
            yield number, [*feed.values(), *run(feed)]


def _reference_run(artifact: Artifact) -> Callable[[Arrays], list[NDArray[Any]]]:
    """The model of ``artifact``, in its shapes, on the reference engine."""
    shapes = {spec.name: spec.shape for spec in _given(artifact) if spec.shape}
    reference = Reference(load_model(find_model(artifact), shapes))
    return lambda feed: reference.outputs(feed)[1]


def write_cases(path: Path, cases: Iterator[tuple[int, list[NDArray[Any]]]]) -> None:
    """Write what the self-test runs: for every case the number of its set, then all inputs and outputs.

    The set's number and the bytes of each tensor come before them, as 64-bit integers of this machine.
    """
    with path.open("wb") as stream:
        for number, arrays in cases:
            stream.write(struct.pack("=q", number))
            for array in arrays:
                stream.write(struct.pack("=q", array.nbytes))
                stream.write(np.ascontiguousarray(array).tobytes())
