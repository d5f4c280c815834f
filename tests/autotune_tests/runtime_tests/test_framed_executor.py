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
