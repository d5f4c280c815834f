"""A model tuned for several sets of input shapes, and the one artifact of them all.

The sets are tuned one after the other, each with its share of the budget and all with the same log: kernels that two
sets have in common are measured once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import onnx
from numpy.typing import NDArray

from autotune.artifact.bundle import Bundle, is_bundle, unpack_part, write_bundle
from autotune.artifact.directory import install, read_artifact, scratch_beside, sha256
from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.open_axes import Interface, open_interface
from autotune.importer.program import TensorSpec
from autotune.options import Options
from autotune.runtime.multi_shape_session import InferenceSession
from autotune.tuning.parts import TunedPart, part_options
from autotune.validation.independence import with_independence
from autotune.validation.verify import compare, complaint, random_inputs, reference_outputs
from schedules.errors import VerificationError

Shapes = Mapping[str, tuple[int, ...]]


T = TypeVar("T", bound=TunedPart)


def tune_sets(model: Path, out: Path, options: Options, tune: Callable[[Path, Options, bool], T]) -> list[T]:
    """Tune ``model`` for every set of ``options.shapes`` and put the bundle at ``out``.

    A bundle that is there already gives its parts, so that a second run goes on where the first one ended.

    Args:
        tune: tunes one set of shapes; after Ctrl-C (True) without measuring anything.

    Returns:
        What ``tune`` returned for each; their artifacts are gone, ``out`` holds them.

    Raises:
        VerificationError: if the bundle is wrong for shapes between those it was built for; ``out`` is left as it was.
        AutotuneError: as ``tune``.
    """
    sets = options.shapes
    with scratch_beside(out) as folder:
        before = Bundle(out) if is_bundle(out) else None
        results: list[T] = []
        for number, shapes in enumerate(sets):
            part = folder / f"part-{number}"
            if before is not None:
                unpack_part(before, shapes, part)
            own = part_options(options, 1 / len(sets), part, shapes)
            results.append(tune(model, own, any(result.interrupted for result in results)))
        parts = [result.artifact for result in results]
        if before is None or not _unchanged(before, parts, sets):
            beside = folder / "bundle"
            _bundle(model, beside, parts, options.seed)
            _check_between(model, beside, sets, options.seed)
            install(beside, out)
    return results


def _unchanged(before: Bundle, parts: Sequence[Path], sets: Sequence[Shapes]) -> bool:
    """Whether the bundle holds just these parts already."""
    if [dict(part.shapes) for part in before.parts] != [dict(shapes) for shapes in sets]:
        return False
    return all(
        (part.path / "manifest.json").read_bytes() == (fresh / "manifest.json").read_bytes()
        for part, fresh in zip(before.parts, parts, strict=True)
    )


def _bundle(model: Path, out: Path, parts: Sequence[Path], seed: int) -> None:
    artifacts = [read_artifact(part) for part in parts]
    interface = open_interface(
        onnx.load(model, load_external_data=False),
        [[(s.name, s.shape, s.dtype) for s in artifact.inputs] for artifact in artifacts],
        [[(s.name, s.shape, s.dtype) for s in artifact.outputs] for artifact in artifacts],
    )
    every = [{spec.name: spec.shape for spec in artifact.inputs} for artifact in artifacts]
    interface = with_independence(interface, every, lambda feed: _ask(model, feed), seed)
    provenance = {"model": model.name, "sha256": sha256(model), "parts": len(parts)}
    write_bundle(out, parts, every, interface, provenance)


def _ask(model: Path, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The reference's outputs."""
    bound = load_model(model, {name: array.shape for name, array in feed.items() if array.ndim})
    return reference_outputs(bound, dict(feed))[1]


def _check_between(model: Path, bundle: Path, sets: Sequence[Shapes], seed: int) -> None:
    """Compare the bundle with the reference at sizes that no part has.

    Raises:
        VerificationError: if they differ.
    """
    session = InferenceSession(bundle)
    interface = Bundle(bundle).interface
    for shapes in _unseen(interface, sets):
        specs = [TensorSpec(spec.name, shapes[spec.name], spec.dtype) for spec in interface.inputs]
        feed = random_inputs(specs, seed)
        verdict = compare("the reference", session.run(None, feed), _ask(model, feed))
        if not verdict.passed:
            told = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
            raise VerificationError(f"{complaint(bundle, verdict, seed)} (shapes {told})")


def _unseen(interface: Interface, sets: Sequence[Shapes]) -> list[dict[str, tuple[int, ...]]]:
    """Sizes between those of the sets, and beyond them, that the bundle should serve."""
    sizes_of = [interface.sizes(shapes) or {} for shapes in sets]
    largest = max(sizes_of, key=lambda sizes: math.prod(sizes.values()))
    wanted: list[dict[str, int]] = []
    for symbol in sorted(interface.padded):
        known = {sizes[symbol] for sizes in sizes_of}
        between = [size for size in range(largest[symbol] - 1, 0, -1) if size not in known]
        wanted += [{**largest, symbol: size} for size in between[:1]]
        if symbol in interface.split:
            wanted.append({**largest, symbol: largest[symbol] + 1})
    return [
        {spec.name: tuple(sizes[s] if isinstance(s, str) else s for s in spec.shape) for spec in interface.inputs}
        for sizes in wanted
    ]
