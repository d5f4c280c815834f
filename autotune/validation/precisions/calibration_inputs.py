"""The inputs that errors are measured on: the user's own, or random ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from autotune.host.dtypes import numpy_type
from autotune.interface import TensorSpec
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import ModelError

RANDOM_SAMPLES = 16
"""Random inputs where none are given. A model whose softmax is sure of one class has errors that differ by an order of
magnitude from one input to the next: of Inception v2 in bf16, four inputs say 2.0 times OpenVINO's error, sixteen
1.2 times (``python -m research.precision``, random weights)."""

MOST_SAMPLES = 64
"""Samples that are used, the first ones: the reference engine runs each once for every set of products that is
tried."""


def calibration_inputs(specs: Sequence[TensorSpec], source: Path | None, seed: int) -> list[Arrays]:
    """Inputs of the model, one dictionary (input name → array of the input's shape) for each sample.

    Args:
        specs: the model's inputs, with their shapes.
        source: an ``.npz`` file with an array per input, or a folder of them, read in the order of their names. An
            array may hold several samples, one after the other along its first axis. None: ``RANDOM_SAMPLES`` random
            ones.
        seed: of the random ones.

    Raises:
        ModelError: naming the file, and what it lacks or has too much of.
    """
    if source is None:
        return [random_inputs(specs, seed + number) for number in range(RANDOM_SAMPLES)]
    files = sorted(source.glob("*.npz")) if source.is_dir() else [source]
    if not files:
        raise ModelError(f"{source} has no .npz file; give one, or a folder of them, with an array for every input")
    samples: list[Arrays] = []
    for file in files:
        samples += _samples(file, specs)
        if len(samples) >= MOST_SAMPLES:
            break
    return samples[:MOST_SAMPLES]


def _samples(file: Path, specs: Sequence[TensorSpec]) -> list[Arrays]:
    try:
        loaded = np.load(file, allow_pickle=False)
        arrays = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, AttributeError, BadZipFile) as error:  # .npy is one array, without names
        raise ModelError(f"{file} cannot be read as .npz ({error}); numpy.savez writes such files") from error
    wanted = {spec.name: spec for spec in specs}
    if arrays.keys() != wanted.keys():
        raise ModelError(f"{file} has arrays {_names(arrays)}; the model's inputs are {_names(wanted)}")
    parts = {name: _divided(file, array, wanted[name]) for name, array in arrays.items()}
    counts = {len(part) for part in parts.values()}
    if len(counts) > 1:
        told = ", ".join(f"{len(part)} of {name}" for name, part in parts.items())
        raise ModelError(f"{file} has {told}; give every input the same number of samples")
    return [{name: part[number] for name, part in parts.items()} for number in range(counts.pop() if counts else 1)]


def _divided(file: Path, array: NDArray[np.generic], spec: TensorSpec) -> list[NDArray[np.generic]]:
    """``array`` as samples of the shape and type of ``spec``."""
    wrong = f"{file}: {spec.name} is {array.dtype}{array.shape}; the model takes {spec.dtype}{spec.shape}"
    if array.dtype != numpy_type(spec.dtype) and array.dtype.kind != numpy_type(spec.dtype).kind:
        raise ModelError(wrong)
    array = array.astype(numpy_type(spec.dtype), copy=False)
    if array.shape == spec.shape:
        return [array]
    if not spec.shape or array.shape[1:] != spec.shape[1:] or array.shape[0] % spec.shape[0] or not array.shape[0]:
        raise ModelError(f"{wrong}, or several of those along the first axis")
    return list(np.split(array, array.shape[0] // spec.shape[0]))


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
