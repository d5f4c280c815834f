"""Kernels with a frame around them, as a session runs them."""

import numpy as np

from autotune.frame.frame import Frame, HostStep
from autotune.interface import OpenSpec, TensorSpec
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.one_shape_executor import FramedExecutor


class Doubling(ArtifactExecutor):
    """Twice its input, and how many are above zero."""

    def __init__(self):
        self.inputs = (TensorSpec("codes", (2,), "float32"),)
        self.outputs = (TensorSpec("y", (2,), "float32"), TensorSpec("n", (), "int64"))
        self.provenance, self.threads, self.ended = {"model": "m"}, 3, False

    def run(self, arrays):
        return [2 * arrays[0], np.array(np.count_nonzero(arrays[0] > 0))]

    def profile(self, arrays):
        return [("kernel", float(arrays[0].sum()))]

    def halt(self):
        self.ended = True


TABLE = {"keys": ["a", "b"], "values": [1.0, 2.0], "default": 0.0, "dtype": "float32"}
FRAME = Frame(
    (TensorSpec("x", (2,), "object"),),
    (OpenSpec("y", ("?",), "float32"),),
    {},
    (HostStep("LabelEncoder", ("x",), ("codes",), TABLE),),
    (HostStep("Cut", ("y", "n"), ("y",), {"axis": 0}),),
)


def test_steps_run_before_and_after_the_kernels():
    kernels = Doubling()
    framed = FramedExecutor(kernels, FRAME)
    assert (framed.inputs, framed.outputs, framed.threads) == (FRAME.inputs, FRAME.outputs, 3)
    (output,) = framed.run([np.array(["b", "z"], object)])
    assert output.tolist() == [4.0]
    assert framed.profile([np.array(["a", "b"], object)]) == [("kernel", 3.0)]
    framed.cancel()
    assert kernels.ended


def test_what_the_frame_hands_through_is_the_caller_s():
    outputs = tuple(OpenSpec(name, ("?",), "object") for name in ("one", "other", "x"))
    steps = tuple(HostStep("Identity", ("x",), (name,)) for name in ("one", "other"))
    framed = FramedExecutor(Doubling(), Frame(FRAME.inputs, outputs, {}, FRAME.before, steps))
    array = np.array(["a", "b"], object)
    answers = framed.run([array])
    for number, answer in enumerate(answers):
        answer[0] = number
    assert [answer.tolist() for answer in answers] == [[number, "b"] for number in range(3)]
    assert array.tolist() == ["a", "b"]


def test_elements_of_a_sequence_are_the_caller_s():
    frame = Frame(
        FRAME.inputs, (OpenSpec("all", (2,), "sequence"),), {}, FRAME.before, (HostStep("Pack", ("x", "x"), ("all",)),)
    )
    array = np.array(["a", "b"], object)
    ((one, other),) = FramedExecutor(Doubling(), frame).run([array])
    one[0] = "c"
    assert (array.tolist(), other.tolist()) == (["a", "b"], ["a", "b"])
