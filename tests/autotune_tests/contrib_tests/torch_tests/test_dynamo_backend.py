"""``torch.compile(module, backend="tune")``: what runs on kernels, what stays in PyTorch, and why."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.options import Options
from schedules.vocabulary.errors import UsageError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch.dynamo_backend import run_options, tune_backend  # noqa: E402
from autotune.contrib.torch.tuned_graph import TunedGraph  # noqa: E402
from autotune.contributions import install  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests import modules  # noqa: E402


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[TunedGraph]:
    """The graphs that get artifacts."""
    tuned: list[TunedGraph] = []

    def make(*arguments: Any) -> TunedGraph:
        tuned.append(TunedGraph(*arguments))
        return tuned[-1]

    monkeypatch.setattr("autotune.contrib.torch.dynamo_backend.TunedGraph", make)
    return tuned


def on_kernels(graphs: list[TunedGraph]) -> list[bool]:
    return [any(bound._session is not None for bound in graph._bound) for graph in graphs]


def close(outputs: Any, wanted: Any) -> None:
    torch.testing.assert_close(outputs, wanted, rtol=1e-3, atol=1e-4)


CASES: dict[str, tuple[Any, Any, int]] = {
    "mlp": (modules.Mlp, lambda: (torch.randn(3, 8),), 1),
    "cnn": (modules.Cnn, lambda: (torch.randn(2, 3, 8, 8),), 1),
    "transformer": (modules.Encoder, lambda: (torch.randint(0, 20, (2, 6)),), 1),
    "graph break": (modules.Broken, lambda: (torch.randn(3, 8),), 2),
    "nested": (
        modules.Nested,
        lambda: ({"x": torch.randn(3, 8)}, [torch.randn(3, 8), torch.arange(3)]),
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_modules_run_on_kernels(case: str, graphs: list[TunedGraph], caplog: pytest.LogCaptureFixture) -> None:
    make, inputs, count = CASES[case]
    module = make().eval()
    compiled = torch.compile(module, backend=tune_backend)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "autotune"):
        for _ in range(3):
            arguments = inputs()
            close(compiled(*arguments), module(*arguments))
    assert on_kernels(graphs) == [True] * count
    assert not [record for record in caplog.records if "PyTorch" in record.message]


def test_outputs_share_memory_with_views_of_inputs_alone(graphs: list[TunedGraph]) -> None:
    compiled = torch.compile(modules.Nested().eval(), backend=tune_backend)
    arguments = ({"x": torch.randn(3, 8)}, [torch.randn(3, 8), torch.arange(3)])
    with torch.inference_mode():
        compiled(*arguments)
        one, two = compiled(*arguments), compiled(*arguments)
        assert on_kernels(graphs) == [True]
        assert one["made"] is one["again"]
        assert one["same"] is arguments[1][0]
        assert one["view"].data_ptr() == arguments[0]["x"].data_ptr()
        kept = two["made"].clone()
        one["made"].fill_(7.0)
        assert torch.equal(two["made"], kept)
        assert one["size"] == 3


STAYING: dict[str, tuple[Any, Any, str]] = {
    "writes": (modules.Counting, torch.no_grad, "it writes into an input, a weight or a buffer"),
    "random": (modules.Noisy, torch.no_grad, "it draws random numbers"),
    "gradients": (modules.Mlp, torch.enable_grad, "requires gradients; call the module under torch.no_grad()"),
    "autocast": (modules.Mlp, lambda: torch.autocast("cpu", torch.bfloat16), "requires gradients|autocast is on"),
}


@pytest.mark.parametrize("case", STAYING)
def test_what_stays_in_pytorch_is_said_once(
    case: str, graphs: list[TunedGraph], caplog: pytest.LogCaptureFixture
) -> None:
    make, mode, said = STAYING[case]
    module, other = make().eval(), make().eval()
    other.load_state_dict(module.state_dict())
    compiled = torch.compile(module, backend=tune_backend)
    with mode(), caplog.at_level(logging.WARNING, "autotune"):
        for _ in range(3):
            x = torch.randn(3, 8)
            torch.manual_seed(1)
            wanted = other(x)
            torch.manual_seed(1)
            output = compiled(x)
            close(output, wanted)
    assert on_kernels(graphs) in ([], [False])
    assert len([record for record in caplog.records if "PyTorch" in record.message]) == 1
    assert __import__("re").search(said, caplog.text)
    if case == "gradients":
        compiled(x).sum().backward()
        assert module.first.weight.grad is not None


def test_errors_of_a_module_are_its_own() -> None:
    compiled = torch.compile(modules.Refusing().eval(), backend=tune_backend)
    with torch.no_grad(), pytest.raises(ValueError, match="two rows, please"):
        compiled(torch.ones(3, 8))


def test_options_are_those_of_a_run() -> None:
    assert run_options({}, "instant") == Options(effort="instant")
    assert run_options({"budget_s": 3.0}, "instant") == Options(budget_s=3.0)
    assert run_options({"precision": "bf16", "threads": 1}, "standard").effort == "standard"
    with pytest.raises(UsageError, match=r"'budgets'\]: unknown; did you mean 'budget_s'"):
        run_options({"budgets": 1}, "instant")
    with pytest.raises(UsageError, match="--effort fast: unknown"):
        run_options({"effort": "fast"}, "instant")


def test_an_unknown_mode_or_option_is_an_error() -> None:
    for wrong in ({"mode": "max-autotun"}, {"options": {"efort": "quick"}}):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="did you mean"):
            torch.compile(modules.Mlp().eval(), backend=tune_backend, **wrong)(torch.ones(1, 8))


def test_the_backend_has_the_name_tune(tmp_path: Path) -> None:
    """As PyTorch finds it where the contribution is installed."""
    project = Path(__file__).parents[4] / "autotune" / "contrib" / "torch" / "pyproject.toml"
    (line,) = [line for line in project.read_text().splitlines() if "tune_backend" in line]
    info = tmp_path / "tune_compiler_torch-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tune-compiler-torch\nVersion: 0.2.0\n")
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\n" + line.replace('"', "") + "\n")
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import torch; print(torch._dynamo.list_backends())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "'tune'" in said
    assert install("torch") == "pip install 'tune-compiler[torch]'"
