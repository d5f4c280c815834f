"""The greedy choice of boxes."""

import numpy as np
import tvm

from autotune.importer.operators.dynamic.suppression import greedy
from schedules.lower import normalise


def chosen(boxes, scores, **limits):
    """Per class, the boxes kept, best first."""
    batch, classes, count = scores.shape
    kept = limits.get("kept", count)
    func = greedy(batch, classes, count, kept)
    numbers = np.array([limits.get("overlap", 0.5), limits.get("least", 0), limits.get("most", kept)], np.float32)
    out = tvm.runtime.tensor(np.full((batch, classes, 1 + kept), 99, np.int64))
    tvm.compile(normalise(func), target="llvm")["main"](*map(tvm.runtime.tensor, (boxes, scores, numbers)), out)
    boxes_kept = out.numpy()
    return [boxes_kept[b, c, 1 : 1 + boxes_kept[b, c, 0]].tolist() for b in range(batch) for c in range(classes)]


def test_the_best_box_drops_those_that_overlap_it_and_ties_go_to_the_first():
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [0, 0.6, 1, 1.6], [3, 3, 4, 4]]], np.float32)
    scores = np.array([[[0.5, 0.5, 0.9, 0.1], [0.1, 0.7, 0.0, 0.7]]], np.float32)
    assert chosen(boxes, scores) == [[2, 0, 3], [1, 3]]
    assert chosen(boxes, scores, overlap=0.2) == [[2, 3], [1, 3]]
    assert chosen(boxes, scores, kept=1) == [[2], [1]]
    assert chosen(boxes, scores, most=2) == [[2, 0], [1, 3]]
    assert chosen(boxes, scores, least=0.6) == [[2], [1, 3]]
