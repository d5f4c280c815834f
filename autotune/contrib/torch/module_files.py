"""PyTorch modules as ONNX files: the export, its check, and the files that ``autotune.tune`` then works on."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autotune.contrib.torch.fast_paths import without_fast_paths
from autotune.host.shared_files import private_folder
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.options import Options, cache_folder
from autotune.runtime.adaptive.tuned_kernels import agree
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import InstallError, ModelError, UsageError, VerificationError, first_line

if TYPE_CHECKING:  # optional, and slow to import
    import torch
    from torch.export import ExportedProgram

FOLDER = "torch"
"""Folder of this contribution in the user's cache folder."""

PROGRAM = ".pt2"
"""Suffix of the exported program next to the ONNX file: the same module, for peers that run PyTorch."""

KEPT = 32
"""Models, and graphs of ``torch.compile``, that stay in the cache folder. Heuristic."""


def export_module(module: torch.nn.Module, example_inputs: Any, options: Options) -> Path:
    """Write ``module`` as an ONNX file, and check the file's outputs against the module's.

    Axes whose sizes differ between ``example_inputs``, ``options.inputs`` and ``options.shapes`` are open in the file.

    Args:
        example_inputs: a tuple of the positional arguments of ``forward``, a mapping of its keyword arguments, or the
            only argument.

    Returns:
        A file in the user's cache folder, named after the module's class.

    Raises:
        UsageError: if the module is in training mode or not on the CPU, or the inputs do not fit it.
        ModelError: if it cannot be exported.
        VerificationError: if the exported model gives other outputs than the module.
        InstallError: if PyTorch or its exporter is not installed.
    """
    check_installed()
    import torch

    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{name} is not a torch.nn.Module; give the module whose forward computes the model")
    if example_inputs is None:
        raise UsageError(f"{name}: a module needs example_inputs; give a tuple of the arguments of its forward")
    if module.training:
        raise UsageError(f"{name} is in training mode; call its eval() first")
    arguments, keywords = _arguments(example_inputs)
    tensors = [*_tensors((arguments, keywords)), *module.parameters(), *module.buffers()]
    if strange := [tensor for tensor in tensors if tensor.device.type != "cpu"]:
        raise UsageError(f"{name}: a tensor is on {strange[0].device}; move the module and its inputs to the CPU")
    with torch.no_grad(), _explained(name), quiet():
        expected = _tensors(module(*arguments, **keywords))
        program = torch.export.export(module, arguments, keywords, strict=False)
        sizes = _sizes(program, _tensors((arguments, keywords)), options)
        if any(len(extents) > 1 for _, axes in sizes for extents in axes):
            arguments, keywords, shapes = _resized(module, arguments, keywords, sizes)
            expected = _tensors(module(*arguments, **keywords))
            program = torch.export.export(module, arguments, keywords, dynamic_shapes=shapes, strict=False)
    if not expected:
        raise ModelError(f"{name} returns no tensor; give a module that does")
    with tempfile.TemporaryDirectory(prefix="tune-torch-") as temporary:
        draft = Path(temporary) / f"{name}.onnx"
        with _explained(name), quiet():
            exported = write_onnx(program, draft)(*arguments, **keywords)
        if not all(agree(numpy_of(one), numpy_of(two)) for one, two in zip(exported, expected, strict=True)):
            raise VerificationError(
                f"{name}: ONNX Runtime gives other outputs for the exported model; report the module"
            )
        with _explained(name):
            torch.export.save(program, draft.with_suffix(PROGRAM))
        return _kept(draft)


def check_installed() -> None:
    """Refuse to go on without PyTorch and its exporter.

    Raises:
        InstallError: naming the command that installs them.
    """
    for name in ("torch", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise InstallError(f"PyTorch models need {name}; run: pip install 'tune-compiler[torch]'")


def write_onnx(program: ExportedProgram, path: Path) -> Any:
    """Write an exported program as an ONNX file, without the paths and lines of the user's sources.

    Returns:
        The exporter's program, which ONNX Runtime runs when it is called.
    """
    import torch

    exported: Any = torch.onnx.export(without_fast_paths(program), dynamo=True, verbose=False)
    for node in exported.model.graph.all_nodes():
        node.metadata_props.clear()
    exported.save(path)
    return exported


def numpy_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the tensor's values as an array, in the same memory."""
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # which NumPy does not have
        short: NDArray[Any] = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return short
    array: NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
    return array


def tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """Inverse of ``numpy_of``."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's remarks about its own deprecations and optional packages from the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [exporter.level for exporter in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for exporter in loggers:
            exporter.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for exporter, level in zip(loggers, levels, strict=True):
                exporter.setLevel(level)


def reason_of(error: BaseException) -> str:
    """Return the first cause of an error of the exporter in one line, with its type."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"


def prune(folder: Path) -> None:
    """Remove the folders in ``folder`` that were not used for longest, beyond ``KEPT``."""
    entries = sorted((entry.stat().st_mtime_ns, entry) for entry in folder.iterdir() if entry.is_dir())
    for _, old in entries[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn errors of PyTorch into one line."""
    try:
        with third_party():
            yield
    except ThirdPartyError as error:
        raise ModelError(f"{name} cannot be exported: {reason_of(error)}") from error


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of ``forward``."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,), {}


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and mappings, in the order of the exporter."""
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


Sizes = list[tuple["torch.Tensor", list[list[int]]]]
"""Every input and, for each of its axes, the sizes that it is to have, the example's first."""


def _sizes(program: ExportedProgram, examples: Sequence[torch.Tensor], options: Options) -> Sizes:
    """The sizes that ``options`` ask for.

    Raises:
        UsageError: for an unknown input, or a shape of another rank.
    """
    names = [spec.arg.name for spec in program.graph_signature.input_specs if _is_tensor_input(spec)]
    sizes: Sizes = [(example, [[size] for size in example.shape]) for example in examples]
    wanted: Iterable[Mapping[str, Sequence[int]]] = options.shapes or (options.inputs,)
    for name, shape in ((name, shape) for shapes in wanted for name, shape in shapes.items()):
        if name not in names:
            raise UsageError(f"--input {name}: the module has no such input; {did_you_mean(name, names)}it has {names}")
        axes = sizes[names.index(name)][1]
        if len(axes) != len(shape):
            raise UsageError(f"--input {name}: {len(shape)} sizes, and its example has {len(axes)}; give as many")
        for extents, size in zip(axes, shape, strict=True):
            if size not in extents:
                extents.append(size)
    return sizes


def _is_tensor_input(spec: Any) -> bool:
    from torch.export.graph_signature import InputKind, TensorArgument

    return spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)


def _resized(
    module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], sizes: Sizes
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Arguments of the largest sizes, since the exporter fixes sizes of 0 and 1, and which of their axes are open."""
    import torch
    from torch.utils import _pytree as pytree

    grown = {id(tensor): grown_to(tensor, [max(extents) for extents in axes]) for tensor, axes in sizes}
    arguments, keywords = pytree.tree_map(lambda leaf: grown.get(id(leaf), leaf), (arguments, keywords))
    shapes = torch.export.ShapesCollection()
    for tensor, axes in sizes:
        shapes[grown[id(tensor)]] = [torch.export.Dim.AUTO if len(extents) > 1 else None for extents in axes]
    return arguments, keywords, shapes.dynamic_shapes(module, arguments, keywords)


def grown_to(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return ``tensor``, or its entries repeated until it has ``shape``."""
    import torch

    for axis, size in enumerate(shape):
        if size != tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor


def _kept(draft: Path) -> Path:
    """The file in the cache folder, in a folder named by its content, so that a repeated run finds it unchanged."""
    digest = hashlib.sha256()
    for file in sorted(draft.parent.iterdir()):
        if file.suffix != PROGRAM:  # which is a new archive every time
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    place = private_folder(cache_folder() / FOLDER) / digest.hexdigest()
    if not (place / draft.name).is_file():
        private_folder(place)
        for file in sorted(draft.parent.iterdir(), key=lambda file: file == draft):  # the file that is looked for last
            shutil.copyfile(file, place / file.name)
        prune(place.parent)
    place.touch()
    return place / draft.name
