"""``--precision auto``: every product in what is faster of fp32 and bf16, as far as the model's error allows.

The model is tuned in fp32, then with all products in bf16, and in TF32 where there are tensor cores; records of these
never mix. A product is to be in bf16 where its kernel is faster so. If the model with all those in bf16 is farther from
fp32 than the bound, errors are measured product by product. They say what a set may cost (``choose_products``); ONNX
Runtime says what sets cost, from the one that saves most time on, until one keeps the bound. That is built, until the
real kernels keep it too. What keeps it is timed in turn as a whole, and the fastest is the artifact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from autotune.artifact.directory import read_tasks
from autotune.artifact.manifest import annotate
from autotune.artifact.precision_choice import PRECISION_CHOICE, PrecisionChoice, ProductChoice
from autotune.builder.build_request import LATENCY
from autotune.host.machine import read_host
from autotune.importer.guarded_import import load_checked
from autotune.importer.kernel_passes import inputs_of
from autotune.options import BF16, FP32, TF32, Precision
from autotune.runtime.model_timing import race, session_run
from autotune.runtime.session import InferenceSession
from autotune.tuning.composition import Composed
from autotune.tuning.precisions.choose_products import choose_products
from autotune.tuning.precisions.product_times import ProductTimes, kernels_s, product_kernels, product_times
from autotune.tuning.result import Result
from autotune.tuning.run_plan import PartJob, part_options
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.precisions.calibration_inputs import calibration_inputs
from autotune.validation.precisions.output_errors import DEFAULT_ENGINE, OutputErrors
from autotune.validation.verify import session_inputs
from schedules.template_sets import has_bf16, has_tf32

logger = logging.getLogger(__name__)

SHARE = 0.8
"""Share of the budget for the model in one precision throughout, fp32, bf16 and TF32 together; what is left is for
kernels between products of different precisions, which none of these has. Heuristic, not measured."""

FIRST = 0.75
"""Part of what is left of the budget for the next set of products. A later set has most of its kernels from the sets
before it. Heuristic, not measured."""

TRIES = 4
"""Sets of products that are built, at most, before fp32 is kept. Heuristic, not measured."""

ROUNDED = Precision(None, TF32)

STEP = 2**-0.125
"""The next set of products may have this share of the last one's sum of errors. Heuristic: a smaller one loses less
time of the model to the search, and runs more sets."""

SETS = 48
"""Sets of products that ONNX Runtime computes, at most, for one that is built: down to 1/64 of the first sum."""


class AutoPrecision:
    """The composition of a model in single precisions and in mixtures of fp32 and bf16, of which one is built."""

    def __init__(self, job: PartJob) -> None:
        assert job.target is not None
        self._path, self._options, self._target = job.model, job.options, job.target
        self._made: dict[Precision, Path] = {}
        self._errors: dict[Precision, float] = {}
        self._pure: tuple[Precision, ...] = (FP32,)
        self._bound, self._bound_of, self._samples = 0.0, "", 0
        self._times: tuple[ProductTimes, ...] = ()
        self._alone: dict[int, float] = {}

    def parts(self, folder: Path) -> Iterator[PartJob]:
        """Implement ``Composition.parts``; inputs that cannot be used are refused before anything is tuned."""
        model = load_checked(self._path, self._options.inputs)
        feeds = calibration_inputs(inputs_of(model), self._options.calibration, self._options.seed)
        if not has_bf16(self._target):
            yield self._job(folder, FP32, 1.0)
            return
        self._pure = (FP32, BF16, ROUNDED) if has_tf32(self._target) else (FP32, BF16)
        for precision in self._pure:
            yield self._job(folder, precision, SHARE / len(self._pure))
        judge = self._judge(model, feeds)
        self._errors = {precision: judge.of_artifact(place) for precision, place in self._made.items()}
        feed = None if self._options.frozen else feeds[0]
        self._times = product_times(self._made[FP32], self._made[BF16], feed)
        if not self._times:
            logger.warning("kernels have no times in fp32 and bf16 to compare: all products get the same precision")
        gains = {product.number: product.gain_s for product in self._times}
        wanted = choose_products(gains, dict.fromkeys(gains, 0.0), math.inf)
        left = 1.0 - SHARE
        for _ in range(TRIES):
            if not wanted:
                return
            precision = self._precision(wanted)
            if precision not in self._made:
                yield self._job(folder, precision, FIRST * left)
                left *= 1.0 - FIRST
                self._errors[precision] = judge.of_artifact(self._made[precision])
            if self._errors[precision] <= self._bound:
                return
            logger.info("%s has an error of %.2g, above %.2g", precision, self._errors[precision], self._bound)
            if judge.products != len(self._times):
                logger.warning("ONNX Runtime has other products than the kernels: errors of single ones are not known")
                return
            wanted = self._within_bound(judge, wanted, gains)

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """Implement ``Composition.compose``: the fastest of what keeps the bound; fp32 always does.

        By the sum of the kernels' times, where nothing may be measured.
        """
        kept = [precision for precision in self._made if precision == FP32 or self._errors[precision] <= self._bound]
        by = dict(zip(self._made, results, strict=True))
        measured = not (self._options.frozen or any(result is not None and result.interrupted for result in results))
        seconds = self._raced(kept) if measured and len(kept) > 1 else {}
        best = min(kept, key=lambda precision: seconds[precision] if seconds else kernels_s(self._made[precision]))
        result, artifact = by[best], self._made[best]
        assert result is not None
        choice = self._choice(best)
        latency = {**result.latency_ms, **({"tuned": 1e3 * seconds[best]} if seconds else {})}
        annotate(artifact, {PRECISION_CHOICE: choice.to_data(), LATENCY: latency})
        fields = {"tasks": result.tasks, "latency_ms": latency, "verified": result.verified, "precision": choice}
        return Composed(artifact, {**fields, "parts": ()})

    def _job(self, folder: Path, precision: Precision, share: float) -> PartJob:
        place = folder / str(precision).replace(":", "-").replace(",", "-")[:64]
        self._made[precision] = place
        options = part_options(self._options, share, place, self._options.inputs)
        asked = self._options.peer and precision == FP32
        pure = [read_tasks(self._made[other])[0] for other in self._pure if precision not in self._pure]
        elsewhere = frozenset(task.key for tasks in pure for task in tasks)
        own_options = replace(options, precision=str(precision), accuracy=None, calibration=None, peer=asked)
        return PartJob(self._path, replace(own_options, elsewhere=elsewhere), self._target)

    def _judge(self, model: onnx.ModelProto, feeds: Sequence[Arrays]) -> OutputErrors:
        """Return the judge that measures errors, and note the bound."""
        judge = OutputErrors(model, feeds)
        self._samples = len(feeds)
        if self._options.accuracy is not None:
            self._bound, self._bound_of = self._options.accuracy, "--accuracy"
        elif (theirs := judge.of_openvino(min(self._target.threads, read_host().usable_threads))) is not None:
            self._bound, self._bound_of = theirs, f"that of {DEFAULT_ENGINE}"
        else:
            self._bound, self._bound_of = judge.of_products(BF16), "that of bf16 operands in ONNX Runtime"
        return judge

    def _precision(self, products: frozenset[int]) -> Precision:
        return BF16 if len(products) == len(self._times) else Precision(products)

    def _within_bound(self, judge: OutputErrors, tried: frozenset[int], gains: Mapping[int, float]) -> frozenset[int]:
        """The set that saves most and keeps the bound in ONNX Runtime, of those that errors of single products suggest.

        Errors do not add up in squares where a softmax or a norm magnifies some of them: with Inception v2, 60 of 70
        products were farther than all. So each set is computed as a whole. What ``tried`` really costs, over what ONNX
        Runtime says of it, goes into the bound.
        """
        for number in sorted(tried - self._alone.keys()):
            self._alone[number] = judge.of_products(Precision(frozenset({number})))
        inside = {number: gains[number] for number in tried}
        real, told = self._errors[self._precision(tried)], judge.of_products(self._precision(tried))
        bound = self._bound * min(told / real, 1.0) if math.isfinite(real) else 0.0
        sum_of = math.sqrt(sum(self._alone[number] ** 2 for number in tried if math.isfinite(self._alone[number])))
        last = tried
        for step in range(1, SETS + 1):
            larger = choose_products(inside, self._alone, sum_of * STEP**step)
            if larger != last and judge.of_products(Precision(larger)) <= bound:
                return larger
            last = larger
        return frozenset()

    def _raced(self, precisions: Sequence[Precision]) -> dict[Precision, float]:
        """Seconds of the whole model in each, timed in turn."""
        sessions = [InferenceSession(self._made[precision]) for precision in precisions]
        feed = session_inputs(sessions[0], self._options.seed)
        return dict(zip(precisions, race([session_run(session, feed) for session in sessions]), strict=True))

    def _choice(self, chosen: Precision) -> PrecisionChoice:
        if len(self._made) == 1:
            return PrecisionChoice(str(FP32), "this CPU has no instructions for bf16")
        kernels = product_kernels(self._made[chosen])
        products = tuple(
            ProductChoice(
                product.number,
                kernels[product.place] if product.place < len(kernels) else "",
                chosen.short if product.number in chosen else "fp32",
                product.fp32_s,
                product.bf16_s,
                self._alone.get(product.number),
            )
            for product in self._times
        )
        return PrecisionChoice(
            str(chosen), "", self._errors[chosen], self._bound, self._bound_of, self._samples, products
        )
