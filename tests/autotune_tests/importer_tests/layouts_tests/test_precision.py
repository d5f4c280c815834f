"""Products that read bf16: which tensors are stored so, where casts stand, and what is computed."""

import numpy as np
import pytest
from tvm import relax

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.dtypes import rounded
from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.precision import assign_types, products, read_as_stored
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import FP32, Precision
from autotune.runtime.session import InferenceSession
from autotune.validation.short_operands import product_nodes
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests import tiny
from tests.models.catalog import cached
from tests.shipping import InlineMeasurer, untuned_plan

BF16 = Precision(None)


def graph(name, precision):
    module = import_graph(simplify(load_model(cached(name), {})))
    return assign_types(module, precision)


def calls(module, name):
    """The calls of an operator, in order."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return [b.value for b in bindings if str(getattr(getattr(b.value, "op", None), "name", "")) == f"relax.{name}"]


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_encoder", "tiny_gated"])
def test_every_product_reads_bf16_and_adds_up_in_fp32(name):
    module = graph(name, BF16)
    product_calls = [*calls(module, "nn.conv2d"), *calls(module, "matmul")]
    assert len(product_calls) == len(products(import_graph(simplify(load_model(cached(name), {})))))
    assert {str(arg.ty.dtype) for call in product_calls for arg in call.args} == {"bfloat16"}
    assert {str(call.ty.dtype) for call in product_calls} == {"float32"}


def test_only_the_chosen_products_read_bf16():
    types = [str(call.args[0].ty.dtype) for call in calls(graph("tiny_cnn", Precision(frozenset({1}))), "nn.conv2d")]
    assert types == ["float32", "bfloat16", "float32"]


def test_fp32_leaves_the_program_as_it_is():
    module = import_graph(simplify(load_model(cached("tiny_cnn"), {})))
    assert assign_types(module, FP32) is module


def stored(*steps, weight="bfloat16"):
    """A module whose product reads x and w, both cast to fp32, with ``steps`` between x's cast and the product."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "bfloat16"))
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow():
            value = builder.emit(relax.op.astype(x, "float32"))
            for step in steps:
                value = builder.emit(step(value))
            array = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
            product = relax.op.matmul(value, relax.const(rounded(array, weight)))
            result = builder.emit_output(relax.op.astype(builder.emit(product), "bfloat16"))
        builder.emit_func_output(result)
    return builder.finalize()


def test_products_read_what_was_cast_to_fp32():
    module = read_as_stored(stored(lambda x: relax.op.reshape(x, (8, 4)), lambda x: relax.op.permute_dims(x, (1, 0))))
    (product,) = calls(module, "matmul")
    assert [str(arg.ty.dtype) for arg in (*product.args, product)] == ["bfloat16", "bfloat16", "float32"]
    assert {str(call.ty.dtype) for call in calls(module, "permute_dims")} == {"bfloat16"}
    assert products(module) == []


@pytest.mark.parametrize(
    "module",
    [
        stored(lambda x: relax.op.tanh(x)),
        stored(lambda x: relax.op.add(x, x)),
        stored(weight="float32"),
        stored(weight="float16"),
    ],
    ids=["computed", "added", "long weight", "other type"],
)
def test_products_of_other_numbers_read_fp32(module):
    assert read_as_stored(module) is module
    assert len(products(module)) == 1


def test_a_product_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="product 9 of 4"):
        graph("tiny_cnn", Precision(frozenset({9})))


@pytest.mark.parametrize("name", ["tiny_gru", "tiny_mt_dnn", "tiny_encoder", "lstm"])
def test_products_are_numbered_as_onnxs_are(name):
    """The products of recurrent layers, which ONNX has inside of its operators, are none of them."""
    simple = simplify(load_model(cached(name), {}))
    assert len(products(import_graph(simple))) == len(product_nodes(simple))


def test_pools_and_additions_read_what_products_do():
    """The residual block's first tensor is read by a product and an addition, as bf16, and made by a pool of bf16."""
    module = graph("tiny_cnn", BF16)
    (pool,), (mean,) = calls(module, "nn.max_pool2d"), calls(module, "mean")
    assert {str(call.args[0].ty.dtype) for call in (pool, mean)} == {"bfloat16"}
    widened = [call for call in calls(module, "astype") if str(call.ty.dtype) == "float32"]
    assert len(widened) == 1


def test_gates_average_bf16():
    module = graph("tiny_gated", BF16)
    (mean,) = calls(module, "mean")
    assert str(mean.args[0].ty.dtype) == "bfloat16"


def test_norms_and_softmax_read_fp32():
    module = graph("tiny_encoder", BF16)
    assert {str(call.args[0].ty.dtype) for call in [*calls(module, "mean"), *calls(module, "nn.softmax")]} == {
        "float32"
    }


@pytest.mark.parametrize("name", ["tiny_encoder", "tiny_gated", "tiny_unet"])
def test_outputs_differ_by_the_rounding_of_operands(name, tmp_path):
    simple = simplify(load_model(cached(name), {}))
    measurer = InlineMeasurer(tiny.target(), tmp_path)
    outputs = {}
    for precision in (FP32, BF16):
        program = import_program(simple, tiny.target(), precision)
        out = tmp_path / str(precision)
        build_artifact(out, program, untuned_plan(program, tiny.target()), cached(name), measurer)
        session = InferenceSession(out)
        rng = np.random.default_rng(0)
        feed = {arg.name: rng.standard_normal(arg.shape, dtype=np.float32) for arg in session.get_inputs()}
        outputs[precision] = session.run(None, feed)
    for exact, ours in zip(outputs[FP32], outputs[BF16], strict=True):
        error = np.sqrt(np.mean((ours - exact) ** 2)) / np.sqrt(np.mean(exact**2))
        assert 1e-5 < error < 2e-2


def test_an_average_of_bf16_is_added_up_in_fp32(tmp_path):
    """A thousand numbers near 1: sums of bf16 would stop growing at 256."""
    program = import_program(simplify(load_model(cached("tiny_gated"), {})), tiny.target(), BF16)
    kernel = next(program.programs[task.key] for task in program.tasks if task.name.startswith("mean"))
    assert '"float32"' in kernel
    assert program.precision == BF16
