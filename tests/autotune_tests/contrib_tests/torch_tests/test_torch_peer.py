"""``torch.compile`` as a peer: on the module that the ONNX file was exported from, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.options import Options
from autotune.validation.peers.peer import Work
from autotune.validation.peers.peer_catalog import peer
from schedules.vocabulary.errors import MeasureError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from autotune.contrib.torch.module_files import export_module  # noqa: E402
from autotune.contrib.torch.torch_peer import load_compiled  # noqa: E402
from tests.autotune_tests.contrib_tests.torch_tests import modules  # noqa: E402


def test_the_module_runs_on_the_inputs_of_the_file(tmp_path: Path) -> None:
    assert peer("torch.compile").ways == {"torch.compile": load_compiled}
    module = modules.Tensors().eval()
    batch, more = {"x": torch.randn(3, 8)}, [torch.randn(3, 8), torch.arange(3)]
    source = export_module(module, (batch, more), Options(effort="instant"))
    feed = {"more_1": more[1].numpy(), "batch_x": batch["x"].numpy(), "more_0": more[0].numpy()}
    with torch._inductor.config.patch(freezing=False):  # the setting is the process's, and an engine has one of its own
        engine = load_compiled(Work(tmp_path, 1, tmp_path, feed, source=source))
        assert engine.precision == "fp32"
        wanted = module(batch, more)
    for output, array in zip(engine.run(), (wanted["made"], *wanted["both"]), strict=True):
        assert np.allclose(output, array.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("source", [None, Path("model.onnx")])
def test_a_model_without_its_module_is_refused(source: Path | None, tmp_path: Path) -> None:
    work = Work(tmp_path, 1, tmp_path, {}, source=None if source is None else tmp_path / source)
    with pytest.raises(MeasureError, match=r"is missing: save the module with torch\.export\.save"):
        load_compiled(work)
