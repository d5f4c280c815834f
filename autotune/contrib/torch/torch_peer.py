"""``torch.compile`` as a peer: the module of an exported program next to the ONNX file, compiled by Inductor."""

from __future__ import annotations

from typing import Any

from autotune.contrib.torch.module_files import PROGRAM, numpy_of, quiet, tensor_of
from autotune.validation.peers.peer import Engine, Peer, Work
from schedules.vocabulary.errors import MeasureError

MODE = "max-autotune"
"""Mode of ``torch.compile`` that times several kernels for a product, next to frozen weights."""


def load_compiled(work: Work) -> Engine:
    """Compile the module, on the threads of ``work``; inputs are handed over in their memory.

    Raises:
        MeasureError: if there is no exported program: no way from ONNX back to PyTorch covers its operators.
    """
    import torch

    path = None if work.source is None else work.source.with_suffix(PROGRAM)
    if path is None or not path.is_file():
        raise MeasureError(
            f"{'the model' if path is None else path.name} is missing: save the module with torch.export.save next to "
            "the ONNX file, or tune it by autotune.tune(module)"
        )
    torch.set_num_threads(work.threads)
    torch._inductor.config.freezing = True
    with quiet():
        program = torch.export.load(path)
        module = torch.compile(program.module(), mode=MODE)

    def run() -> list[Any]:
        with torch.no_grad():
            arguments, keywords = _arguments(program, work)
            answer = module(*arguments, **keywords)
        leaves = torch.utils._pytree.tree_leaves(answer)
        return [numpy_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]

    run()  # compiles it
    types = {
        str(tensor.dtype).removeprefix("torch.") for tensor in program.state_dict.values() if tensor.is_floating_point()
    }
    precision = "+".join(sorted({"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(t, t) for t in types))
    return Engine(torch.__version__, precision or "fp32", run)


def _arguments(program: Any, work: Work) -> Any:
    """The arguments of the module: the work's inputs by their names, and constants."""
    import torch
    from torch.export.graph_signature import InputKind, TensorArgument

    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = [
        tensor_of(work.feed[spec.name]) if isinstance(spec, TensorArgument) else getattr(spec, "value", None)
        for spec in specs
    ]
    return torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)


TORCH_COMPILE = Peer("torch", {"torch.compile": load_compiled}, install="pip install 'tune-compiler[torch]'")
