"""Small networks of many fields for the list of strangers: control flow, graphs of nodes, signals, detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Export = Callable[[Path], None]


def _modules() -> dict[str, tuple[Callable[[], Any], tuple[Any, ...], str, int]]:
    """Name → what makes the module, its arguments, the exporter (``ts``, ``dyn`` or ``script``) and the opset."""
    import torch  # optional: an extra
    from torch import nn

    from tests.zoo import own_modules as own

    def floats(*shape: int) -> Any:
        return torch.randn(*shape)

    edges = torch.randint(0, 20, (2, 60))
    return {
        "lstm_with_projection": (lambda: own.ProjectedLstm(), (floats(1, 16, 40),), "ts", 12),
        "causal_convolutions_1d": (lambda: own.CausalConvolutions(), (floats(1, 20, 200),), "ts", 11),
        "diffusion_unet": (lambda: own.DiffusionUnet(), (floats(1, 3, 32, 32), floats(1)), "dyn", 18),
        "message_passing": (lambda: own.MessagePassing(), (floats(20, 16), edges), "dyn", 18),
        "graph_attention": (lambda: own.GraphAttention(), (floats(20, 16), edges), "dyn", 18),
        "detection_head": (lambda: own.DetectionHead(), (floats(1, 3, 64, 64),), "ts", 12),
        "spectrogram_recogniser": (lambda: own.Spectrogram(), (floats(1, 8000),), "ts", 17),
        "half_attention_cnn": (lambda: own.AttentionCnn().half(), (floats(1, 3, 48, 48).half(),), "ts", 14),
        "branch_on_mean": (lambda: own.Branch(), (floats(2, 32),), "script", 16),
        "scripted_loop": (lambda: own.ScriptedLoop(), (floats(6, 3, 24),), "script", 14),
        "list_of_heads": (lambda: own.ListOfHeads(), (floats(1, 3, 40),), "script", 15),
        "splines": (lambda: own.Splines(), (floats(8, 12),), "dyn", 18),
        "ode_steps": (lambda: own.OdeSteps(), (floats(4, 16),), "ts", 9),
        "radiance_field": (lambda: own.RadianceField(), (floats(16, 12, 3),), "dyn", 20),
        "point_neighbours": (lambda: own.PointNeighbours(), (floats(1, 128, 3),), "ts", 18),
        "super_resolution": (lambda: own.SuperResolution(), (floats(1, 3, 24, 32),), "ts", 11),
        "optical_flow": (lambda: own.OpticalFlow(), (floats(1, 3, 32, 48), floats(1, 3, 32, 48)), "ts", 16),
        "text_line_reader": (lambda: own.TextLineReader(), (floats(1, 1, 32, 128),), "ts", 13),
        "ranking": (lambda: own.Ranking(), (floats(4, 13), torch.randint(0, 50, (4, 6))), "dyn", 18),
        "speech_separation": (lambda: own.SpeechSeparation(), (floats(1, 4000),), "ts", 17),
        "mixture_of_experts": (lambda: own.MixtureOfExperts(), (floats(1, 10, 48),), "ts", 17),
        "fourier_operator": (lambda: own.FourierOperator(), (floats(1, 2, 32, 32),), "dyn", 18),
        "codebook": (lambda: own.Codebook(), (floats(1, 3, 32, 32),), "dyn", 21),
        "fake_quantised": (lambda: own.FakeQuantised(), (floats(1, 3, 32, 32),), "ts", 13),
        "capsules": (lambda: own.Capsules(), (floats(1, 1, 28, 28),), "ts", 17),
        "dynamic_filters": (lambda: own.DynamicFilters(), (floats(2, 8, 16, 16),), "dyn", 18),
        "unpooling_segmenter": (lambda: own.UnpoolingSegmenter(), (floats(1, 3, 32, 32),), "ts", 17),
        "masked_transformer": (
            lambda: nn.Transformer(64, 4, 2, 2, 128, batch_first=True, norm_first=True),
            (floats(1, 12, 64), floats(1, 9, 64)),
            "dyn",
            18,
        ),
    }


def _module(name: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra

        torch.manual_seed(0)
        make, arguments, how, opset = _modules()[name]
        model = make().eval()
        if how == "script":
            model = torch.jit.script(model)
        torch.onnx.export(model, arguments, str(path), opset_version=opset, dynamo=how == "dyn", verbose=False)

    return export


def _quantised(name: str) -> Export:
    """The module ``name`` as ONNX Runtime's dynamic quantiser leaves it."""

    def export(path: Path) -> None:
        from onnxruntime import quantization  # optional: an extra

        source = path.with_suffix(".source")
        _module(name)(source)
        quantization.quantize_dynamic(str(source), str(path))
        source.unlink()

    return export


def _scan_of_a_loop(path: Path) -> None:
    """A Scan whose body holds a Loop that ends when a sum is large, and an If whose branches differ in operators."""
    from onnx import TensorProto, helper, numpy_helper, save

    def value(name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    def constant(name: str, number: Any) -> Any:
        return numpy_helper.from_array(np.asarray(number), name)

    node = helper.make_node
    step = helper.make_graph(
        [
            node("MatMul", ["v", "w"], ["turned"]),
            node("Tanh", ["turned"], ["next"]),
            node("ReduceSum", ["next"], ["sum"], keepdims=0),
            node("Less", ["sum", "most"], ["go"]),
        ],
        "step",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [1, 8])],
        [value("go", [], TensorProto.BOOL), value("next", [1, 8])],
    )
    more = helper.make_graph([node("Softplus", ["state_1"], ["a"])], "more", [], [value("a", [1, 8])])
    less = helper.make_graph([node("Neg", ["state_1"], ["b"])], "less", [], [value("b", [1, 8])])
    body = helper.make_graph(
        [
            node("Unsqueeze", ["row", "zero"], ["row_1"]),
            node("Add", ["state", "row_1"], ["v0"]),
            node("Loop", ["trips", "yes", "v0"], ["state_1"], body=step),
            node("ReduceMean", ["state_1"], ["mean"], keepdims=0),
            node("Greater", ["mean", "none"], ["positive"]),
            node("If", ["positive"], ["state_2"], then_branch=more, else_branch=less),
            node("Squeeze", ["state_2", "zero"], ["kept"]),
        ],
        "body",
        [value("state", [1, 8]), value("row", [8])],
        [value("state_2", [1, 8]), value("kept", [8])],
    )
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [node("Scan", ["start", "x"], ["last", "rows"], body=body, num_scan_inputs=1)],
        "scan",
        [value("start", [1, 8]), value("x", [5, 8])],
        [value("last", [1, 8]), value("rows", [5, 8])],
        [
            constant("w", rng.standard_normal((8, 8)).astype(np.float32)),
            constant("most", np.float32(1.0)),
            constant("none", np.float32(0.0)),
            constant("trips", np.int64(4)),
            constant("yes", np.bool_(True)),
            constant("zero", np.array([0], np.int64)),
        ],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), path)


NAMES = (
    *("lstm_with_projection", "causal_convolutions_1d", "diffusion_unet", "message_passing", "graph_attention"),
    *("detection_head", "spectrogram_recogniser", "half_attention_cnn", "branch_on_mean", "scripted_loop"),
    *("list_of_heads", "splines", "ode_steps", "radiance_field", "point_neighbours", "super_resolution"),
    *("optical_flow", "text_line_reader", "ranking", "speech_separation", "mixture_of_experts"),
    *("fourier_operator", "codebook", "fake_quantised", "capsules", "dynamic_filters", "unpooling_segmenter"),
    "masked_transformer",
)
OWN: dict[str, Export] = {
    **{name: _module(name) for name in NAMES},
    "text_line_reader.dynamic": _quantised("text_line_reader"),
    "masked_transformer.dynamic": _quantised("masked_transformer"),
    "scan_of_a_loop": _scan_of_a_loop,
}
"""Name → what writes the file."""
