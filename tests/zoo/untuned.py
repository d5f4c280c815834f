"""``python -m tests.zoo.untuned MODEL [--input NAME:SHAPE]…``: one model, imported whole and built with first guesses.

Kernels are those that a run ships, and nothing is measured. The outputs are compared with ONNX Runtime's, of which one
run is without its optimisations. Prints the fields of a ``tuned.Tuned`` as one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.importer.onnx_model.load import load_model
from autotune.options import INSTANT
from autotune.runtime.session import InferenceSession
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare, compare_session, session_inputs
from schedules.errors import AutotuneError
from tests.shipping import InlineMeasurer, first_guesses, plan_of
from tests.zoo.trial import parsed
from tests.zoo.tuned import Tuned

THREADS = 2


def untuned(path: Path, flags: tuple[str, ...]) -> Tuned:
    """What the model at ``path`` computes with first guesses, on two random inputs."""
    target = host_target(THREADS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tune-zoo-") as folder:
        out = Path(folder) / "out"
        try:
            _, program = import_model(path, parsed(flags), target)
            measurer = InlineMeasurer(target, Path(folder))
            build_artifact(out, program, plan_of(first_guesses(program, target), target), path, measurer)  # type: ignore[arg-type]
            session = InferenceSession(out, threads=THREADS)
            reference = Reference(load_model(path, parsed(flags)))
            verdict = compare_session(session, reference)
            if verdict.passed:
                feed = session_inputs(session, seed=1)
                ours = session.run(None, feed)
                verdict = compare(verdict.reference, ours, reference.plain(feed), lambda: reference.allowance(feed))
        except AutotuneError as error:
            return Tuned(INSTANT, False, f"{type(error).__name__}: {error}", round(time.monotonic() - began, 1))
    seconds = round(time.monotonic() - began, 1)
    message = "" if verdict.passed else f"wrong: {verdict.difference} (allowed {verdict.allowed})"
    return Tuned(INSTANT, verdict.passed, message, seconds, verdict.max_rel_err, verdict.bound)


if __name__ == "__main__":
    print(json.dumps(vars(untuned(Path(sys.argv[1]), tuple(sys.argv[2:])))))
