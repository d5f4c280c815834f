"""A model tuned for several sets of input shapes or numbers of threads, and the one artifact of them all.

They are tuned one after the other, each with its share of the budget and all with the same log: kernels that two sets
have in common are measured once.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from autotune.artifact.composite import MODEL, ONE_SET, Composite, Part, extract_part, read_composite, write_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import CACHES, MANIFEST, SHAPES, kind_of, sha256
from autotune.builder.build_request import ImportedModel
from autotune.builder.open_batch import References
from autotune.frame.noise import is_live, noise_of
from autotune.graph.steps import LiveSizes
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.import_worker import external_bytes
from autotune.importer.load import followed_sizes, load_model
from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.open_axes import OutputAxes, open_interface, sets_with_live, wider_shapes
from autotune.importer.traffic import LENGTH_RANK
from autotune.interface import Growth, Interface, TensorSpec
from autotune.options import AUTO, BF16
from autotune.runtime.session import InferenceSession
from autotune.tuning.composition import Composed
from autotune.tuning.result import Result
from autotune.tuning.run_plan import PartJob, part_options
from autotune.validation.independence import live_sizes, with_independence
from autotune.validation.verify import compare_outputs, complaint, random_inputs
from schedules.vocabulary.errors import AutotuneError, OneSetError, VerificationError

logger = logging.getLogger(__name__)

MOST_BYTES = 2_000_000_000
"""Bytes of a model in one file; Protobuf allows 2 GiB."""

Shapes = Mapping[str, tuple[int, ...]]


class ShapeSets:
    """The composition of a model with ``options.shapes`` or the objective ``balanced``: a part per set and threads.

    An artifact of several sets that is in place already gives its parts, so that a second run goes on where the first
    one ended.
    """

    def __init__(self, job: PartJob) -> None:
        self._model, self._options, self._out, self._target = job.model, job.options, job.out, job.target
        self._sets = job.options.shapes or (job.options.inputs,)
        if len(self._sets) > 1 and job.options.generate is None:
            told = sets_with_live(model_without_weights(job.model), self._sets)
            self._sets = told if told == self._sets or _loads(job.model, told[-1]) else self._sets
        self._counts = job.thread_counts
        self._kinds = [(threads, shapes) for shapes in self._sets for threads in self._counts]
        self._before = read_composite(self._out) if kind_of(self._out) == SHAPES else None
        self._references = References(job.model)

    def parts(self, folder: Path) -> Iterator[PartJob]:
        """See ``Composition.parts``. All numbers of threads of one set of shapes share its import.

        Raises:
            OneSetError: if the host has a part in the model.
        """
        places = (folder / f"part-{number}" for number in itertools.count())
        shares = self._options.shares or [1 / len(self._sets)] * len(self._sets)
        for shapes, share in zip(self._sets, shares, strict=True):
            of_set = replace(self._options, inputs=shapes)
            imported = ImportedModel(self._model, of_set, open_sizes=_open_sizes(shapes) if len(self._sets) > 1 else ())
            # The import tells before anything is tuned; with precision auto, writing the artifact does.
            looked_at = None if len(self._sets) == 1 or self._options.precision == AUTO else self._target
            if looked_at is not None and imported.for_target(looked_at)[1].frame is not None:
                raise OneSetError(f"{self._model.name}: {ONE_SET}")
            for threads, place in zip(self._counts, places, strict=False):
                earlier = None if self._before is None else _part_for(self._before, threads, shapes)
                if earlier is not None:
                    extract_part(earlier.path, place)
                own = part_options(self._options, share / len(self._counts), place, shapes)
                options = replace(own, threads=threads)
                target = self._target
                if target is not None and threads is not None and len(self._counts) > 1:
                    target = replace(target, threads=threads)
                yield PartJob(self._model, options, target, imported=imported)

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """Implement ``Composition.compose``; the whole is also compared at sizes between those of the sets.

        A single artifact in which the host has a part stays as it is: it serves its sizes alone.
        """
        places = [result.artifact for result in results if result is not None]
        artifacts = [read_artifact(place) for place in places]
        if len(artifacts) == 1 and artifacts[0].frame is not None:
            return Composed(places[0])
        before, serves_others = self._before, self._serves_others(artifacts)
        if before is not None and _is_unchanged(before, places, self._kinds, serves_others):
            return Composed(None)
        path, interface = folder / "shapes", self._interface(artifacts)
        self._write(path, artifacts, serves_others, interface)
        try:
            self._check_between(path)
        except VerificationError as error:
            if not any(is_live(spec.name) for spec in interface.inputs):
                raise
            # The sets are right, each was verified: such as with a maximum that loses NaN where padding stands.
            logger.warning(
                "%s: calls of other sizes than those of the sets are not padded: %s", self._model.name, error
            )
            path, nothing = folder / "exact", frozenset[str]()
            exact = replace(interface, padded=nothing, split=nothing, limits={})
            self._write(path, artifacts, serves_others, exact)
        return Composed(path)

    def _write(self, out: Path, artifacts: Sequence[Artifact], serves_others: bool, interface: Interface) -> None:
        shapes = [{spec.name: spec.shape for spec in artifact.inputs} for artifact in artifacts]
        precisions = {artifact.precision for artifact in artifacts}
        provenance = {
            "model": self._model.name,
            "sha256": sha256(self._model),
            "parts": len(artifacts),
            "precision": str(BF16) if len(precisions) > 1 else precisions.pop(),
            CACHES: len(artifacts[0].caches),
        }
        live = self._live(artifacts, shapes, interface) if self._options.generate is None else {}
        model = self._model if serves_others else None
        if model is not None and external_bytes(model):
            whole, model = onnx.load(model), out.with_name(MODEL)
            onnx.save(whole, model)
        places = [artifact.path for artifact in artifacts]
        write_composite(out, SHAPES, places, interface, provenance, live, model)

    def _serves_others(self, artifacts: Sequence[Artifact]) -> bool:
        """Return whether ONNX Runtime is to run other sizes. It would draw its own noise, not by the session's seed."""
        names = {spec.name for artifact in artifacts for spec in artifact.inputs}
        noisy = any(noise_of(name) is not None and not is_live(name) for name in names)
        if noisy or not self._options.leaves_out or importlib.util.find_spec("onnxruntime") is None:
            return False
        fits = self._model.stat().st_size + external_bytes(self._model) <= MOST_BYTES
        if not fits:
            logger.warning("%s is too large for one file: calls of other sizes will be refused", self._model)
        return fits

    def _interface(self, artifacts: Sequence[Artifact]) -> Interface:
        """Return the interface of all parts; what the model leaves open stays so, even where the sets are alike."""
        model = onnx.load(self._model, load_external_data=False)
        inputs, outputs = (
            [[(spec.name, spec.shape, spec.dtype) for spec in specs] for specs in side]
            for side in ([part.inputs for part in artifacts], [part.outputs for part in artifacts])
        )
        extents, _ = self._followed(inputs[-1])
        interface = open_interface(model, inputs, outputs, extents)
        if self._options.generate is not None:
            return interface
        sets: list[Shapes] = [{name: shape for name, shape, _ in part} for part in inputs]
        wider = wider_shapes(model, inputs) if self._options.shapes else None
        if wider is not None:
            try:
                with third_party():
                    specs = [TensorSpec(name, wider[name], dtype) for name, _, dtype in inputs[-1]]
                    arrays = self._references.outputs(random_inputs(specs, self._options.seed))
            except (AutotuneError, ThirdPartyError) as error:  # the model has a name there, but only one size
                logger.debug("sizes %s are not served: %s", wider, error)
            else:
                more = [(name, wider[name], dtype) for name, _, dtype in inputs[-1]]
                results = [
                    (name, array.shape, dtype) for (name, _, dtype), array in zip(outputs[-1], arrays, strict=True)
                ]
                opened = open_interface(model, [*inputs, more], [*outputs, results], extents)
                if opened.knows_outputs():
                    interface, sets = opened, [*sets, wider]
        quantises = any(is_live(spec.name) for spec in interface.inputs)
        engines = (self._references.outputs, *([self._references.exact] if quantises else []))
        return with_independence(interface, sets, engines, self._options.seed)

    def _followed(
        self, inputs: Iterable[tuple[str, tuple[int, ...], str]]
    ) -> tuple[OutputAxes, Mapping[str, Sequence[Growth]]]:
        """``followed_sizes`` of the model, if calls are told which positions count."""
        try:
            return followed_sizes(self._model, {name: shape for name, shape, _ in inputs})
        except AutotuneError as error:  # nothing of it is padded then
            logger.debug("%s", error)
            return {}, {}

    def _live(
        self, artifacts: Sequence[Artifact], shapes: Sequence[Shapes], interface: Interface
    ) -> dict[int, LiveSizes]:
        """Return by the number of a part what it may leave out for sizes below its own."""
        left_out = {}
        for number, (artifact, own) in enumerate(zip(artifacts, shapes, strict=True)):
            if not interface.padded or artifact.frame is not None or artifact.caches:
                continue
            try:
                _, growths = self._followed((spec.name, spec.shape, spec.dtype) for spec in artifact.inputs)
                rows = live_sizes(artifact, interface, own, self._options.seed, growths)
            except AutotuneError as error:  # the part runs whole
                logger.debug("%s: not known what may be left out: %s", artifact.path, error)
                continue
            if rows is not None:
                left_out[number] = rows
        return left_out

    def _check_between(self, path: Path) -> None:
        """Compare the artifact with the reference at sizes that no part has.

        Raises:
            VerificationError: if they differ.
        """
        if self._options.generate is not None:
            return  # every part was; sizes between them are padded with what nothing looks at
        session, composite, seed = InferenceSession(path), read_composite(path), self._options.seed
        interface = composite.interface
        for shapes in _unseen(interface, [part.shapes for part in composite.parts]):
            specs = [TensorSpec(spec.name, shapes[spec.name], spec.dtype) for spec in interface.inputs]
            feed = random_inputs(specs, seed)
            verdict = compare_outputs(session, self._references.of(feed), feed)
            if not verdict.passed:
                told = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
                raise VerificationError(f"{complaint(path, verdict, seed)} (shapes {told})")


def _loads(model: Path, shapes: Shapes) -> bool:
    """Return whether ``model`` can be told which positions count; else its calls are not padded."""
    try:
        load_model(model, shapes, apart=True)
    except AutotuneError as error:
        logger.debug("%s: it is not told which positions count: %s", model, error)
        return False
    return True


def _part_for(composite: Composite, threads: int | None, shapes: Shapes) -> Part | None:
    """The part for so many threads (None: any) and these shapes; what a model leaves no choice of is not in them."""
    wanted = {name: tuple(shape) for name, shape in shapes.items()}
    return next(
        (
            part
            for part in composite.parts
            if {**part.shapes, **wanted} == part.shapes and threads in (None, part.threads)
        ),
        None,
    )


def _is_unchanged(
    before: Composite, places: Sequence[Path], kinds: Sequence[tuple[int | None, Shapes]], serves_others: bool
) -> bool:
    """Return whether the artifact in place holds just these parts already, and the model for other sizes if wanted."""
    if bool(before.other_sizes) != serves_others or [_part_for(before, *kind) for kind in kinds] != list(before.parts):
        return False
    return all(
        (part.path / MANIFEST).read_bytes() == (fresh / MANIFEST).read_bytes()
        for part, fresh in zip(before.parts, places, strict=True)
    )


def _unseen(interface: Interface, sets: Sequence[Shapes]) -> list[dict[str, tuple[int, ...]]]:
    """Sizes between those of the sets, and beyond them, that the artifact should serve."""
    sizes_of = [interface.sizes(shapes) or {} for shapes in sets]
    largest = max(sizes_of, key=lambda sizes: math.prod(sizes.values()))
    wanted: list[dict[str, int]] = []
    for symbol in sorted(interface.padded):
        known = {sizes[symbol] for sizes in sizes_of}
        between = [n for n in range(largest[symbol] - 1, 0, -1) if n not in known and interface.may_pad(symbol, n)]
        wanted += [{**largest, symbol: size} for size in between[:1]]
        if symbol in interface.split:
            wanted.append({**largest, symbol: largest[symbol] + 1})
    return [
        {spec.name: tuple(sizes[s] if isinstance(s, str) else s for s in spec.shape) for spec in interface.inputs}
        for sizes in wanted
    ]


def _open_sizes(shapes: Shapes) -> tuple[int, int]:
    """Rows of the batch, and positions of sequences, that all inputs have; 1 where they have not."""
    inputs = [shape for name, shape in shapes.items() if not is_live(name)]
    axes = [{shape[axis] for shape in inputs if len(shape) > axis} for axis in (0, 1)]
    batch, length = (next(iter(own)) if len(own) == 1 else 1 for own in axes)
    return batch, length if all(len(shape) <= LENGTH_RANK for shape in inputs) else 1
