"""PyTorch modules as ONNX files, and ``autotune.tune`` of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune.options import Options
from autotune.tuning.tune import is_repeated, tune
from schedules.vocabulary.errors import AutotuneError, InstallError, ModelError, UsageError, VerificationError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch import module_files  # noqa: E402
from autotune.contrib.torch.module_files import export_module, grown_to, numpy_of, prune, tensor_of  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests import modules  # noqa: E402

OPTIONS = Options(effort="instant")


def shapes_of(path: Path) -> dict[str, list[Any]]:
    graph = onnx.load(path).graph
    return {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in graph.input
    }


def test_a_module_is_tuned_verified_and_served(caches: Path, tmp_path: Path) -> None:
    module, x = modules.Mlp().eval(), torch.randn(3, 8)
    options = Options(effort="instant", out=tmp_path / "mlp.tuned")
    result = tune(module, options, example_inputs=x)
    assert result.model == "Mlp.onnx"
    assert result.verified is not None
    assert result.verified.passed
    (output,) = autotune.InferenceSession(result.artifact).run(None, {"x": x.numpy()})
    assert np.allclose(output, module(x).detach().numpy(), atol=1e-5)
    assert is_repeated(tune(module, options, example_inputs={"x": x}))


@pytest.mark.parametrize("wanted", [{"shapes": ({"x": (1, 8)}, {"x": (6, 8)})}, {"inputs": {"x": (6, 8)}}])
def test_axes_whose_sizes_differ_are_open(wanted: dict[str, Any]) -> None:
    path = export_module(modules.Mlp().eval(), (torch.randn(1, 8),), Options(effort="instant", **wanted))
    (shape,) = shapes_of(path).values()
    assert isinstance(shape[0], str)
    assert shape[1] == 8


@pytest.mark.parametrize("positional", [True, False])
def test_nested_arguments_are_flat_inputs_in_order(positional: bool) -> None:
    batch, more = {"x": torch.randn(3, 8)}, [torch.randn(3, 8), torch.arange(3)]
    arguments: Any = (batch, more) if positional else {"more": more, "batch": batch}
    path = export_module(modules.Tensors().eval(), arguments, OPTIONS)
    assert shapes_of(path) == {"batch_x": [3, 8], "more_0": [3, 8], "more_1": [3]}


def test_files_say_nothing_of_the_sources() -> None:
    path = export_module(modules.Cnn().eval(), torch.randn(1, 3, 8, 8), OPTIONS)
    assert str(Path(modules.__file__).parent).encode() not in path.read_bytes()


class Shrinking(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sum(), x.shape[0]


class Silent(torch.nn.Module):
    def forward(self, x: Any) -> None:
        return None


X = torch.ones(2, 8)

REFUSED: dict[str, tuple[Any, Any, Options, type[AutotuneError], str]] = {
    "training": (modules.Mlp(), X, OPTIONS, UsageError, "Mlp is in training mode; call its eval"),
    "no example": (modules.Mlp().eval(), None, OPTIONS, UsageError, "Mlp: a module needs example_inputs"),
    "no module": (X, X, OPTIONS, UsageError, "Tensor is not a torch.nn.Module"),
    "device": (modules.Mlp().eval(), X.to("meta"), OPTIONS, UsageError, "a tensor is on meta"),
    "its own error": (modules.Refusing().eval(), torch.ones(3), OPTIONS, ModelError, "ValueError: two rows, please"),
    "shape": (modules.Mlp().eval(), torch.ones(2, 7), OPTIONS, ModelError, "RuntimeError: mat1 and mat2"),
    "no tensor": (Silent().eval(), X, OPTIONS, ModelError, "Silent returns no tensor"),
    "a size": (Shrinking().eval(), X, OPTIONS, ModelError, "Shrinking cannot be exported: "),
    "unknown input": (
        modules.Mlp().eval(),
        X,
        Options(inputs={"xx": (1, 8)}),
        UsageError,
        "--input xx: the module has no such input; did you mean 'x'",
    ),
    "rank": (modules.Mlp().eval(), X, Options(inputs={"x": (1, 8, 8)}), UsageError, "--input x: 3 sizes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_refused_in_one_line(case: str) -> None:
    module, inputs, options, error, said = REFUSED[case]
    with pytest.raises(error, match=re.escape(said)) as caught:
        tune(module, options, example_inputs=inputs)
    assert "\n" not in str(caught.value)


def test_an_export_with_other_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.Mlp().eval()
    write = module_files.write_onnx

    def wrong(program: Any, path: Path) -> Any:
        exported = write(program, path)
        return lambda *arguments: [output + 1 for output in exported(*arguments)]

    monkeypatch.setattr(module_files, "write_onnx", wrong)
    with pytest.raises(VerificationError, match="ONNX Runtime gives other outputs"):
        export_module(module, X, OPTIONS)


@pytest.mark.parametrize("name", ["torch", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda other: None if other == name else find_spec(other))
    with pytest.raises(InstallError, match=rf"{name}; run: pip install 'tune-compiler\[torch\]'"):
        export_module(modules.Mlp().eval(), X, OPTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_arrays_and_tensors_share_their_memory(dtype: Any) -> None:
    tensor = torch.ones(2, 3, dtype=dtype)
    array = numpy_of(tensor)
    assert array.dtype.name == str(dtype).removeprefix("torch.")
    back = tensor_of(array)
    assert back.dtype == dtype
    assert back.data_ptr() == tensor.data_ptr()


def test_examples_are_repeated_and_cut() -> None:
    assert grown_to(torch.tensor([[1, 2]]), (3, 1)).tolist() == [[1], [1], [1]]
    assert grown_to(torch.tensor([[1, 2]]), (1, 3)).tolist() == [[1, 2, 1]]


def test_what_was_not_used_for_longest_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_files, "KEPT", 2)
    for number, name in enumerate("cab"):
        (tmp_path / name).mkdir()
        __import__("os").utime(tmp_path / name, (number, number))
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
