"""``python -m tests.zoo.untuned MODEL [NAME:SHAPE]…``: one model, imported whole and built with first guesses.

Kernels are those that a run ships, and nothing is measured. The outputs are compared with ONNX Runtime's, of which one
run is without its optimisations. Prints the fields of a ``tuned.Tuned`` as one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from autotune.artifact.plan import Plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.builder.accuracy import LEVELS
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.importer.load import load_model
from autotune.importer.program import Program
from autotune.options import INSTANT
from autotune.runtime.session import InferenceSession
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import compare, compare_session, session_inputs
from schedules.config import Config
from schedules.vocabulary.errors import AutotuneError
from tests.shipping import InlineMeasurer, first_guesses, plan_of
from tests.zoo.trial import parsed
from tests.zoo.tuned import Tuned

THREADS = 2


def untuned(path: Path, flags: tuple[str, ...]) -> Tuned:
    """Compare the model at ``path``, built with first guesses, with ONNX Runtime on two random inputs.

    As in a run, those that give up accuracy for speed are built first, and less lossy ones where the outputs differ.
    """
    target = host_target(THREADS)
    began = time.monotonic()
    plans: list[dict[str, Config]] = []
    try:
        _, program = import_model(path, parsed(flags), target)
        reference = Reference(load_model(path, parsed(flags)))
        for level in LEVELS:
            configs = first_guesses(program, target, level)
            if configs in plans:
                continue
            plans.append(configs)
            verdict = _verdict(path, program, plan_of(configs, target), reference)
            if verdict.passed:
                break
    except AutotuneError as error:
        return Tuned(INSTANT, False, f"{type(error).__name__}: {error}", round(time.monotonic() - began, 1))
    seconds = round(time.monotonic() - began, 1)
    message = "" if verdict.passed else f"wrong: {verdict.difference} (allowed {verdict.allowed})"
    return Tuned(INSTANT, verdict.passed, message, seconds, verdict.max_rel_err, verdict.bound)


def _verdict(path: Path, program: Program, plan: Plan, reference: Reference) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="tune-zoo-") as folder:
        measurer = InlineMeasurer(plan.target, Path(folder))
        build_artifact(Path(folder) / "out", program, plan, path, measurer)  # type: ignore[arg-type]
        session = InferenceSession(Path(folder) / "out", threads=THREADS)
        verdict = compare_session(session, reference)
        if not verdict.passed:
            return verdict
        feed = session_inputs(session, seed=1)
        ours, theirs = session.run(None, feed), reference.plain(feed)
        return compare(verdict.reference, ours, theirs, lambda: reference.allowance(feed))


if __name__ == "__main__":
    print(json.dumps(vars(untuned(Path(sys.argv[1]), tuple(sys.argv[2:])))))
