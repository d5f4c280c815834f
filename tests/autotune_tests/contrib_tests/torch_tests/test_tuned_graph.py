"""Captured graphs over many calls: other weights, other sizes, other processes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch import tuned_graph  # noqa: E402
from autotune.contrib.torch.dynamo_backend import tune_backend  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests import modules  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests.test_dynamo_backend import close, graphs, on_kernels  # noqa: E402, F401


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Models of the runs that build artifacts."""
    paths: list[Path] = []
    tune = tuned_graph.tune

    def counted(model: Path, options: Any) -> Any:
        paths.append(model)
        return tune(model, options)

    monkeypatch.setattr(tuned_graph, "tune", counted)
    return paths


def test_changed_weights_and_other_modules_get_artifacts_of_their_own(runs: list[Path]) -> None:
    one, two, x = modules.Mlp().eval(), modules.Mlp().eval(), torch.randn(2, 8)
    compiled = [torch.compile(module, backend=tune_backend) for module in (one, two)]
    with torch.no_grad():
        for _ in range(2):
            close([function(x) for function in compiled], [one(x), two(x)])
        assert len(runs) == 2
        one.first.weight += 1.0
        two.load_state_dict({name: value * 2 for name, value in two.state_dict().items()})
        for _ in range(2):
            close([function(x) for function in compiled], [one(x), two(x)])
        assert len(runs) == 4


def test_weights_that_change_all_the_time_stay_in_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tuned_graph, "MOST_WEIGHTS", 0)
    module, x = modules.Mlp().eval(), torch.randn(2, 8)
    compiled = torch.compile(module, backend=tune_backend)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "autotune"):
        for _ in range(3):
            module.first.weight += 1.0
            close(compiled(x), module(x))
    assert caplog.text.count("its weights were changed") == 1


def test_a_graph_is_built_once_for_all_processes(runs: list[Path], graphs: list[Any]) -> None:  # noqa: F811
    module, x = modules.Mlp(24).eval(), torch.randn(2, 8)
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(module, backend=tune_backend)
        with torch.no_grad():
            compiled(x)
            close(compiled(x), module(x))
    assert on_kernels(graphs) == [True, True]
    assert len(runs) == 1
    module.last = torch.nn.Linear(24, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=tune_backend)(x)
    assert len(runs) == 2


def test_sizes_that_change_share_an_artifact(runs: list[Path], graphs: list[Any]) -> None:  # noqa: F811
    module = modules.Mlp(20).eval()
    compiled = torch.compile(module, backend=tune_backend, dynamic=True)
    with torch.no_grad():
        for rows in (5, 6, 3, 40, 2, 5):
            x = torch.randn(rows, 8)
            close(compiled(x), module(x))
    assert on_kernels(graphs) == [True]
    assert len(runs) == 1


class Steps(torch.nn.Module):
    """Sums along an axis, so a longer input cannot be cut into several."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.layer(x).sum(0), 0), x.shape[0]


def test_sizes_that_are_not_served_are_added_and_then_left(
    runs: list[Path],
    graphs: list[Any],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuned_graph, "MOST_SHAPES", 3)
    module = Steps().eval()
    compiled = torch.compile(module, backend=tune_backend, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "autotune"):
        for rows in (3, 3, 8, 8, 50, 50):
            x = torch.randn(rows, 8)
            close(compiled(x), module(x))
    assert on_kernels(graphs) == [True]
    assert runs
    assert caplog.text.count("there are kernels for") == 1


def test_numbers_that_change_stay_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x, number: x * number, backend=tune_backend, dynamic=True)
    with caplog.at_level(logging.WARNING, "autotune"):
        for number in (3, 4, 5):
            assert torch.equal(compiled(torch.ones(4), number), torch.full((4,), float(number)))
    assert caplog.text.count("stays in PyTorch") >= 1


def test_an_artifact_with_other_numbers_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
    graphs: list[Any],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuned_graph, "agree", lambda *_: False)
    module, x = modules.Mlp().eval(), torch.randn(2, 8)
    compiled = torch.compile(module, backend=tune_backend)
    with torch.no_grad():
        close(compiled(x), module(x))
    assert on_kernels(graphs) == [False]
    assert "outputs differ from PyTorch's" in caplog.text
