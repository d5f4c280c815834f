"""The ordered list of passes that turn a model into tasks.

``load.load_model`` gives the first property, "checked". A pass changes a draft in place; it needs what earlier passes
gave. A new pass is a new line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autotune.importer import graph_passes as graph
from autotune.importer import kernel_passes as kernel
from autotune.importer.draft import GraphDraft, KernelDraft
from autotune.importer.fusion.bands import cut_into_bands
from autotune.importer.fusion.before_resizing import convolve_before_resizing
from autotune.importer.fusion.column_parts import take_columns_apart
from autotune.importer.fusion.fusion_graph import fuse
from autotune.importer.fusion.scales import split_batch_norms
from autotune.importer.low_bits.low_bit_graph import as_bytes, join_products

Draft = TypeVar("Draft")


@dataclass(frozen=True)
class Pass(Generic[Draft]):
    """One step of an import.

    Attributes:
        needs: properties of the draft without which the step would do nothing, or something wrong.
        gives: properties that the draft has after it.
    """

    name: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    run: Callable[[Draft], None]


SIMPLIFY: tuple[Pass[GraphDraft], ...] = (
    Pass("functions", ("checked",), ("flat", "skeleton"), graph.expand_functions),
    Pass("strings", ("flat",), ("numeric",), graph.take_strings_out),
    Pass("opset", ("numeric",), ("new forms",), graph.raise_opset),
    Pass("foreign", ("new forms",), ("standard",), graph.replace_foreign),
    Pass("opset without foreign", ("standard",), ("opset",), graph.raise_opset),
    Pass("low bits", ("opset", "skeleton"), ("packed",), graph.keep_low_bits),
    Pass("integers", ("opset", "packed"), ("integer",), graph.keep_integers),
    Pass("sizes", ("standard", "integer"), ("sizes",), graph.resolve_sizes),
    Pass("opset of bodies", ("sizes",), ("final opset",), graph.raise_opset),
    Pass("weights", ("sizes", "final opset"), ("weights",), graph.restore_weights),
    Pass("joined low bits", ("packed", "weights"), ("joined",), graph.in_place(join_products)),
    Pass("bytes of low bits", ("joined",), ("bytes",), graph.in_place(as_bytes)),
    Pass("fold", ("weights", "bytes"), ("folded",), graph.in_place(graph.fold_weights)),
    Pass("fuse", ("sizes", "folded"), ("fused",), graph.in_place(fuse)),
    Pass("norms", ("fused",), ("scaled",), graph.in_place(split_batch_norms)),
    Pass("columns", ("fused",), ("split",), graph.in_place(take_columns_apart)),
    Pass("bands", ("scaled",), ("cut",), graph.in_place(cut_into_bands)),
    Pass("resizing", ("scaled",), ("early",), graph.in_place(convolve_before_resizing)),
    Pass("shapes", ("scaled", "split", "cut", "early"), ("shapes",), graph.infer_again),
    Pass("frame", ("numeric", "shapes"), ("simple",), graph.note_frame),
)
"""They turn a checked model into a simplified one."""

PROGRAM: tuple[Pass[KernelDraft], ...] = (
    Pass("interface", ("simple",), ("interface",), kernel.name_interface),
    Pass("outputs", ("interface",), ("outputs",), kernel.make_outputs),
    Pass("biases", ("outputs",), ("biases",), kernel.add_biases),
    Pass("codes", ("biases",), ("codes",), kernel.store_codes),
    Pass("attention", ("codes",), ("attention",), kernel.join_attentions),
    Pass("relax", ("attention",), ("relax",), kernel.convert_to_relax),
    Pass("images", ("relax",), ("images",), kernel.view_as_images),
    Pass("types", ("images",), ("types",), kernel.choose_types),
    Pass("layouts", ("types",), ("layouts",), kernel.choose_layouts),
    Pass("kernels", ("layouts",), ("kernels",), kernel.form_kernels),
    Pass("tasks", ("kernels",), ("tasks",), kernel.describe_tasks),
)
"""They turn a simplified model into tasks."""


def run(passes: Sequence[Pass[Draft]], draft: Draft, *known: str) -> set[str]:
    """Run ``passes`` on ``draft``, which has the properties ``known``; all that it has then.

    Raises:
        ValueError: before anything is run, if a pass needs what none before it gives.
    """
    properties = set(known)
    for step in passes:
        if missing := {*step.needs} - properties:
            raise ValueError(f"pass {step.name!r} needs {', '.join(sorted(missing))}, which no pass before it gives")
        properties.update(step.gives)
    for step in passes:
        step.run(draft)
    return properties
