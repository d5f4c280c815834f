"""What the model takes on ONNX Runtime, so that a person who watches a run knows what there is to beat."""

from __future__ import annotations

import importlib.util
import logging
import statistics
from collections.abc import Sequence

import onnx

from autotune.events import PeerTimed
from autotune.importer.program import TensorSpec
from autotune.tuning.run_history import Run
from autotune.validation.bench import time_peer
from autotune.validation.verify import random_inputs
from schedules.errors import MeasureError

PEER = "onnxruntime"

logger = logging.getLogger(__name__)


def peer_latency(
    model: onnx.ModelProto, inputs: Sequence[TensorSpec], threads: int, seed: int, earlier: Sequence[Run] = ()
) -> PeerTimed | None:
    """The peer's latency as ``earlier`` runs know it, else measured now (a second or two); None where it cannot be had.

    Args:
        model: checked, its shapes fixed.
        inputs: of the model; fed with random numbers from ``seed``.
        threads: as many as our kernels run on.
    """
    known = next((run.peer for run in reversed(earlier) if run.peer is not None), None)
    if known is not None:
        return PeerTimed(**known)
    if importlib.util.find_spec(PEER) is None:
        return None
    try:
        times = time_peer(PEER, model, random_inputs(tuple(inputs), seed), threads)
    except MeasureError as error:
        logger.warning("%s was not timed: %s", PEER, error)
        return None
    return PeerTimed(times.name, times.version, statistics.median(times.runs_s))
