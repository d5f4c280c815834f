"""The name of a graph's folder depends on all that decides its artifact, and on nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.options import Options
from schedules.vocabulary.errors import ModelError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch.graph_files import GraphFiles, bound_graph, is_weight, placeholders  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests import modules  # noqa: E402


def captured(function: Any, *arguments: Any) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append((graph, list(inputs)))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep)(*arguments)
    ((graph, inputs),) = graphs
    return graph, inputs


def weights_of(graph: Any) -> list[int]:
    return [number for number, node in enumerate(placeholders(graph)) if is_weight(node)]


def folder(function: Any, *arguments: Any, options: Options | None = None) -> str:
    graph, inputs = captured(function, *arguments)
    return str(GraphFiles(graph, inputs, weights_of(graph), options or Options()).model.parent)


X = torch.ones(2, 8)


def test_folders_are_named_by_what_decides_an_artifact() -> None:
    module = modules.Mlp().eval()
    first = folder(module, X)
    assert folder(module, X) == folder(module, 2 * X) == first
    others = [folder(module, torch.ones(3, 8)), folder(module, X, options=Options(effort="quick"))]
    with torch.no_grad():
        module.last.bias[0] += 1e-3
    others += [folder(module, X), folder(lambda x: x + 1, X), folder(lambda x: x + 2, X), folder(lambda x: x - 1, X)]
    assert len({first, *others}) == 7


def test_a_graph_of_foreign_functions_has_no_folder() -> None:
    def foreign(x: Any) -> Any:
        return x + 1

    allowed = torch.compiler.allow_in_graph(foreign)
    with pytest.raises(ModelError, match="which is not PyTorch's"):
        folder(lambda x: allowed(x) * 2, X)


def test_weights_become_constants_and_inputs_are_numbered() -> None:
    module = modules.Mlp().eval()
    graph, inputs = captured(module, X)
    numbers = weights_of(graph)
    assert len(numbers) == 4
    bound = bound_graph(graph, inputs, numbers, [0])
    (only,) = placeholders(bound)
    (place,) = {*range(len(inputs))} - {*numbers}
    assert only.target == f"input_{place}"
    (output,) = bound(X)
    torch.testing.assert_close(output, module(X))
    assert all(
        buffer.data_ptr() in {parameter.data_ptr() for parameter in module.parameters()} for buffer in bound.buffers()
    )
