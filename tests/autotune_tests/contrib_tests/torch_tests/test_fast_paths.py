"""The fused operator is written out exactly: every form of an encoder layer without gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch.fast_paths import without_fast_paths  # noqa: E402


class Layer(torch.nn.Module):
    """An encoder layer, with a mask of its own."""

    def __init__(self, mask: str, **options: Any) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, **options)
        self.mask = mask

    def forward(self, x: Any) -> Any:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if "causal" in self.mask else None
        padding = torch.arange(x.shape[1]).expand(x.shape[:2]) > 2 if "padding" in self.mask else None
        return self.layer(x, causal, padding)


CASES = {
    "plain": lambda: Layer(""),
    "causal": lambda: Layer("causal"),
    "padding": lambda: Layer("padding"),
    "both": lambda: Layer("causal padding"),
    "norm first": lambda: Layer("padding", norm_first=True),
    "gelu": lambda: Layer("", activation="gelu"),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_are_written_out_exactly(case: str) -> None:
    module, x = CASES[case]().eval(), torch.randn(3, 5, 16)
    kept: list[Any] = []

    def capture(graph: Any, inputs: Any) -> Any:
        kept.append((graph, tuple(inputs)))
        return graph.forward

    with torch.no_grad():
        wanted = torch.compile(module, backend=capture)(x)
        for graph, inputs in kept:
            program = torch.export.export(graph, inputs, strict=False)
            fused = {
                node.target
                for node in program.graph.nodes
                if "_fwd" in str(node.target) or "_native_" in str(node.target)
            }
            assert fused
            plain = without_fast_paths(program)
            assert not fused & {node.target for node in plain.graph.nodes}
            (output, *_) = plain.module()(*inputs)
            torch.testing.assert_close(output, wanted, rtol=1e-4, atol=1e-5)
    assert len(kept) == 1
