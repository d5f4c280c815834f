"""Passes from a simplified ONNX model over Relax to the kernels that are tuned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.ir import GenericConst, IRModule

from autotune.importer.conversion.bounds import bounded
from autotune.importer.conversion.narrow import encoded
from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.conversion.packed_outputs import spec_of
from autotune.importer.draft import KernelDraft
from autotune.importer.fusion.attentions import join_attention
from autotune.importer.generation.caches import bind_caches
from autotune.importer.images.lines import lines_as_images
from autotune.importer.images.polyphase import few_filters
from autotune.importer.images.volumes import volumes_as_images
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from autotune.importer.layouts.channels_last import ChannelsLast
from autotune.importer.layouts.choices_apart import choices_apart
from autotune.importer.layouts.own_outputs import copy_outputs
from autotune.importer.layouts.precision import (
    IN_LONG,
    assign_types,
    chosen_products,
    kernel_in_long,
    products,
    read_as_stored,
)
from autotune.importer.layouts.shared_kernels import share_kernels
from autotune.importer.layouts.small_chains import small_chains_apart
from autotune.importer.layouts.stored_bytes import store_bytes
from autotune.importer.layouts.tensor_layouts import elementwise_as_said
from autotune.importer.onnx_model.shapes import true_inputs
from autotune.importer.operators.contractions.integer_products import PRODUCTS, with_biases
from autotune.importer.rewriting.registry import INJECTIVE_PATTERN
from autotune.importer.rewriting.relax_values import bindings_of, operator_name, shape_of
from autotune.interface import TensorSpec
from autotune.options import FP32, TF32
from schedules.lower import NUMBERS, load_program, normalise, operations, program_of, task_key, template_name
from schedules.target import Target
from schedules.task import Task
from schedules.templates.amx.amx_product import has_amx, terms
from schedules.templates.instructions.dots import byte_form, form_of, pair_form
from schedules.templates.low_bit.low_bit_tiles import has_tiles
from schedules.vocabulary.errors import ModelError


def name_interface(draft: KernelDraft) -> None:
    """Say what the model takes and gives, and write caches in place."""
    draft.inputs, draft.outputs = interface(draft.model)
    if draft.caches:
        draft.inputs, draft.caches = draft.inputs[:-1], bind_caches(draft.model, draft.caches)


def make_outputs(draft: KernelDraft) -> None:
    """Let a kernel of one output make each output; the model is a copy from here on."""
    draft.model = bounded(draft.model)


def add_biases(draft: KernelDraft) -> None:
    """Add what zero points contribute to integer products as one constant."""
    draft.model = with_biases(draft.model, draft.templates.activations(draft.target))


def store_codes(draft: KernelDraft) -> None:
    """Store narrow numbers as bit patterns that are decoded where they are read."""
    draft.model = encoded(draft.model, half_native=draft.templates.half_native)


def join_attentions(draft: KernelDraft) -> None:
    """Make one kernel of attention in fp32. Operands of 16 bits are multiplied faster by kernels of their own."""
    if draft.templates.by_hand and draft.precision == FP32:
        join_attention(draft.model)


def convert_to_relax(draft: KernelDraft) -> None:
    """Convert every operator to Relax."""
    draft.module = import_graph(draft.model, draft.templates.by_hand)


def view_as_images(draft: KernelDraft) -> None:
    """Convolve and pool lines and volumes as images."""
    draft.module = few_filters(volumes_as_images(lines_as_images(draft.module)))


def choose_types(draft: KernelDraft) -> None:
    """Give every product its precision."""
    if draft.templates.half_native:
        draft.module = read_as_stored(draft.module)
    draft.products = len(products(draft.module))
    draft.module = assign_types(draft.module, draft.precision)


def choose_layouts(draft: KernelDraft) -> None:
    """Give every tensor a layout, and pack weights."""
    last = draft.templates.channels_last
    rounded = chosen_products(draft.module, draft.precision) if draft.precision.short == TF32 else ()
    layouts = ChannelsLast(rounded) if last else _blocked(draft.model, draft.module, draft.target)
    draft.module, draft.weights = assign_layouts(draft.module, layouts)


def form_kernels(draft: KernelDraft) -> None:
    """Fuse operators to kernels; equal ones are shared."""
    if draft.templates.channels_last:
        draft.module = _fused(draft.module, ())
    else:
        draft.module, draft.weights = share_kernels(_fused(draft.module, (store_bytes,)), draft.weights)


def describe_tasks(draft: KernelDraft) -> None:
    """Describe the distinct kernels as tasks."""
    draft.tasks, draft.programs, draft.kernels = _tasks(draft.module, draft.target)


def interface(model: onnx.ModelProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs (without initialisers) and outputs of an ONNX graph with static shapes."""
    return inputs_of(model), tuple(map(_spec, model.graph.output))


def inputs_of(model: onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """Inputs of an ONNX graph with static shapes, without initialisers."""
    return tuple(map(_spec, true_inputs(model.graph)))


def _spec(info: onnx.ValueInfoProto) -> TensorSpec:
    if not info.type.HasField("tensor_type"):
        raise ModelError(
            f"{info.name} is a sequence or an optional value, which cannot be tuned yet; let the model read and return "
            "its tensors one by one"
        )
    return spec_of(info)


def _blocked(model: onnx.ModelProto, module: IRModule, target: Target) -> Blocked:
    """Blocks of one vector of fp32; of whole dot products where two rows of bytes are multiplied at once.

    A row of an AMX tile is a block of an image where all images have whole ones: it need not be gathered then.
    """
    pairs = partial(pair_form, target=target)
    form = pairs(byte_form(target)) if any(node.op_type in PRODUCTS for node in model.graph.node) else None
    panel = max(target.lanes(), form.depth if form else 0)
    calls = [binding.value for binding in bindings_of(module) if operator_name(binding.value) == "relax.nn.conv2d"]
    forms = (form_of(str(call.args[0].ty.dtype), str(call.args[1].ty.dtype)) for call in calls)
    images = [(int(call.ty.shape[1]), form) for call, form in zip(calls, forms, strict=True)]
    rows = {terms(form) for _, form in images if has_amx(form, target) and form is not None}
    block = max(rows, default=panel)
    whole = all(channels % block == 0 or channels < panel for channels, _ in images)  # fewer are padded in any case
    return Blocked(block if whole else panel, pairs, panel, has_tiles(target))


def _fused(module: IRModule, between: Sequence[Callable[[IRModule], IRModule]]) -> IRModule:
    """Kernels, and a ``main`` that calls them; ``between`` is done when it is known what belongs into which."""
    for step in (
        relax.transform.DeadCodeElimination(["main"]),  # the first steps of channel shuffles that are read in place
        relax.transform.LegalizeOps({**dict.fromkeys(IN_LONG, kernel_in_long), "relax.take": _taken}),
        relax.transform.AnnotateTIROpPattern(),
        elementwise_as_said,
        choices_apart,
        small_chains_apart,
        relax.transform.FuseOps(),
        *between,
        relax.transform.FuseTIR(),
        _output_named_apart,
        # A reshape that stands alone is no kernel: the same bytes under another shape.
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(["main"]),
        copy_outputs,
    ):
        module = step(module)
    return module


def _taken(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The kernel of a gather at constant places, which is fused with its readers. TVM fuses none."""
    shape, is_known = shape_of(call.args[0]), shape_of(call) is not None
    if call.attrs.axis is None or str(call.attrs.mode) != "fast" or not shape or not is_known:
        return call.op.get_attr("FLegalize")(builder, call)
    axis = int(call.attrs.axis) % len(shape)

    def taken(x: te.Tensor, places: te.Tensor) -> te.Tensor:
        behind = axis + len(places.shape)

        def element(*at: tirx.Var) -> tirx.Expr:
            # What makes x may have axes of 64 bits, for which the place stands once it is part of the kernel.
            return x(*at[:axis], places(*at[axis:behind]).astype("int64"), *at[behind:])

        return te.compute((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]), element, name="T_take")

    attrs = {"op_pattern": INJECTIVE_PATTERN}
    return builder.call_te(taken, *call.args, primfunc_name_hint="take", primfunc_attrs=attrs)


def _output_named_apart(module: IRModule) -> IRModule:
    """Bind what makes an only output within the dataflow too, as several outputs are: TVM rewrites reshapes there."""
    main, blocks = module["main"], []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and not isinstance(binding.var, relax.DataflowVar):
                inner = relax.DataflowVar(binding.var.name, binding.var.ty)
                bindings.append(relax.VarBinding(inner, binding.value))
                binding = relax.VarBinding(binding.var, inner)
            bindings.append(binding)
        blocks.append(relax.DataflowBlock(bindings) if isinstance(block, relax.DataflowBlock) else block)
    body = relax.SeqExpr(blocks, main.body.body)
    module.update_func(module.get_global_var("main"), relax.Function(main.params, body, main.ret_ty, True, main.attrs))
    return module


def _tasks(module: IRModule, target: Target) -> tuple[tuple[Task, ...], dict[str, str], dict[str, str]]:
    tasks: dict[str, Task] = {}
    programs: dict[str, str] = {}
    kernels: dict[str, str] = {}
    uses: Counter[str] = Counter()
    weights = set(module["main"].params[int(module["main"].attrs["num_input"]) :])
    for call in (binding.value for binding in bindings_of(module)):
        if operator_name(call) != "relax.call_tir":
            continue
        name, arguments = call.args[0].name_hint, call.args[1].fields
        if name not in kernels:
            func = normalise(module[name])
            key = task_key(func)
            kernels[name] = key
            if key not in tasks:
                constants = tuple(
                    index for index, arg in enumerate(arguments) if isinstance(arg, GenericConst) or arg in weights
                )
                numbers = tuple(float(number) for number in module[name].attrs.get(NUMBERS, ()))
                programs[key] = program_of(func)
                # Parsed again, as whoever asks for the space or a kernel of it does: it is matched once.
                template = template_name(load_program(programs[key]), target)
                tasks[key] = replace(describe(func, key, name, template, constants), numbers=numbers)
        uses[kernels[name]] += 1
    weighted = [replace(task, weight=uses[key]) for key, task in tasks.items()]
    weighted.sort(key=lambda task: (-task.flop * task.weight, -task.bytes * task.weight, task.key))
    return tuple(weighted), programs, kernels


def describe(func: tirx.PrimFunc, key: str, name: str, template: str, constants: tuple[int, ...]) -> Task:
    """The Task of a normalised function."""
    shapes = tuple(tuple(int(extent) for extent in param.ty.shape) for param in func.params)
    dtypes = tuple(str(param.ty.dtype) for param in func.params)
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in zip(shapes, dtypes, strict=True)]
    return Task(key, name, template, template, shapes, dtypes, constants, operations(func), sum(sizes))
