"""Attention becomes one kernel, however exporters write it, and only where that is what the graph says."""

import numpy as np
import pytest
from onnx import helper

from schedules.templates.by_hand.plain_attention import NAME
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

LENGTH, POSITIONS, HEADS, SIZE, BATCH = 64, 48, 2, 16, 2


class Written:
    """A graph of one attention: what is between the inputs (batch, rows, heads · size) and the output y."""

    def __init__(self, rank=4):
        self.nodes, self.numbers, self.rank = [], {}, rank
        self.inputs = [value(name, (BATCH, rows, HEADS * SIZE)) for name, rows in self.rows().items()]

    def rows(self):
        return {"q": LENGTH, "k": POSITIONS, "v": POSITIONS}

    def op(self, kind, *inputs, to=None, **attributes):
        to = to or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [to], to, **attributes))
        return to

    def number(self, array):
        name = f"c{len(self.numbers)}"
        self.numbers[name] = np.asarray(array)
        return name

    def heads(self, name, turned=False):
        """(batch, heads, rows, size), or (batch · heads, rows, size) of three axes."""
        if self.rank == 3:
            rows = self.rows()[name]
            turn = self.op("Transpose", name, perm=[1, 0, 2])
            flat = self.op("Reshape", turn, self.number(np.array([rows, BATCH * HEADS, SIZE])))
            return self.op("Transpose", flat, perm=[1, 2, 0] if turned else [1, 0, 2])
        split = self.op("Reshape", name, self.number(np.array([BATCH, -1, HEADS, SIZE])))
        return self.op("Transpose", split, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])

    def model(self, mask=None, weights=None, scores=None, joined=True, opset=17):
        product = self.op("MatMul", self.heads("q"), self.heads("k", turned=True))
        product = self.op("Mul", product, self.number(np.float32(0.25)))
        product = scores(self, product) if scores else product
        product = self.op("Add", product, mask) if mask else product
        soft = self.op("Softmax", product, axis=-1)
        soft = weights(self, soft) if weights else soft
        outputs = ["y"]
        if joined:
            attended = self.op("MatMul", soft, self.heads("v"))
            turned = self.op("Transpose", attended, perm=[1, 0, 2] if self.rank == 3 else [0, 2, 1, 3])
            self.op("Reshape", turned, self.number(np.array([-1, HEADS * SIZE])), to="y")
        else:
            self.op("MatMul", soft, self.heads("v"), to="y")
        return model_of(self.nodes, self.inputs, outputs, self.numbers, opset=opset)


def feed_of(graph, **given):
    rng = np.random.default_rng(0)
    shapes = {
        spec.name: [dim.dim_value for dim in spec.type.tensor_type.shape.dim]
        for spec in graph.graph.input
        if spec.name not in given
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | given


def kernels(graph, folder):
    return [task.template for task in imported(graph, folder).tasks]


def is_joined(graph, folder):
    templates = kernels(graph, folder)
    assert (NAME in templates) != ("batch_matmul" in templates)
    return NAME in templates


def check(graph, folder, joined=True, **given):
    assert is_joined(graph, folder) == joined
    assert close(*run(graph, folder, feed_of(graph, **given)))


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("turned_back", [True, False])
def test_it_is_one_kernel(rank, turned_back, tmp_path):
    graph = Written(rank).model(joined=turned_back)
    check(graph, tmp_path)
    if rank == 4:  # of three axes, batch and heads are one, which takes a copy
        assert kernels(graph, tmp_path) == [NAME]


def test_weights_that_are_no_number_become_zeros(tmp_path):
    """As PyTorch's exporter writes it, for rows that are shown nothing."""
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))

    def zeroed(graph, soft):
        return graph.op("Where", graph.op("IsNaN", soft), graph.number(np.float32(0)), soft)

    mask = np.zeros((BATCH, 1, 1, POSITIONS), np.float32)
    mask[1] = -np.inf
    check(written.model("m", zeroed), tmp_path, m=mask)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_mask_may_be_a_choice(swapped, tmp_path):
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))

    def chosen(graph, product):
        shown = graph.op("Greater" if swapped else "Less", "m", graph.number(np.float32(0)))
        low = graph.number(np.float32(np.finfo(np.float32).min))
        return graph.op("Where", shown, *((product, low) if swapped else (low, product)))

    check(written.model(scores=chosen), tmp_path)


@pytest.mark.parametrize("extents", [(1, POSITIONS), (BATCH, 1, 1, POSITIONS), (1, HEADS, 1, POSITIONS), (POSITIONS,)])
def test_a_mask_of_columns(extents, tmp_path):
    written = Written()
    written.inputs.append(value("m", extents))
    check(written.model("m"), tmp_path)


@pytest.mark.parametrize("form", ["and", "expanded", "chosen"])
def test_rows_of_a_mask_that_are_equal_are_one(form, tmp_path):
    """Exporters expand the padding of a batch to a mask of every row."""
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))
    shown = written.op("Greater", "m", written.number(np.float32(0)))
    wide = written.number(np.array([BATCH, 1, LENGTH, POSITIONS]))
    if form == "expanded":
        shown = written.op("Expand", shown, wide)
    else:
        shown = written.op("And", shown, written.number(np.ones((1, 1, LENGTH, 1), bool)))
    least = written.number(np.float32(-3.4e38))
    if form == "chosen":
        check(written.model(scores=lambda graph, product: graph.op("Where", shown, product, least)), tmp_path)
    else:
        check(written.model(written.op("Where", shown, written.number(np.float32(0)), least)), tmp_path)


@pytest.mark.parametrize("by_row", ["constant", "input"])
def test_a_mask_whose_rows_may_differ_is_not_cut(by_row, tmp_path):
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))
    rows = np.tri(LENGTH, POSITIONS, dtype=np.float32)[None, None]
    other = written.number(rows)
    if by_row == "input":
        written.inputs.append(value("n", (1, 1, LENGTH, 1)))
        other = "n"
    check(written.model(written.op("Mul", "m", other)), tmp_path, joined=False)


def test_masks_are_added_up(tmp_path):
    written = Written()
    written.inputs += [value("m", (BATCH, 1, 1, POSITIONS)), value("n", (1, HEADS, 1, POSITIONS))]
    check(written.model("m", scores=lambda graph, product: graph.op("Add", "n", product)), tmp_path)


@pytest.mark.parametrize(
    ("extents", "why"), [((BATCH, 1, 1, 1), "all columns have one number"), ((1, 1, LENGTH, POSITIONS), "turned")]
)
def test_masks_that_the_kernel_does_not_take(extents, why, tmp_path):
    written = Written()
    written.inputs.append(value("m", extents))
    check(written.model("m"), tmp_path, joined=False)


@pytest.mark.parametrize("low", [-10000.0, 0.0])
def test_a_choice_of_another_number_is_none(low, tmp_path):
    """−10,000 instead of the score is not −10,000 added to it."""
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))

    def chosen(graph, product):
        shown = graph.op("Greater", "m", graph.number(np.float32(0)))
        return graph.op("Where", shown, product, graph.number(np.float32(low)))

    check(written.model(scores=chosen), tmp_path, joined=False)


def test_weights_that_something_else_reads_are_computed(tmp_path):
    written = Written()
    graph = written.model()
    soft = next(node.output[0] for node in graph.graph.node if node.op_type == "Softmax")
    graph.graph.output.append(helper.make_tensor_value_info(soft, 1, (BATCH, HEADS, LENGTH, POSITIONS)))
    check(graph, tmp_path, joined=False)


@pytest.mark.parametrize(("length", "positions", "size"), [(31, 48, 16), (64, 15, 16), (64, 48, 12), (33, 41, 16)])
def test_sizes_that_would_be_computed_in_vain(length, positions, size, tmp_path, monkeypatch):
    for name, number in (("LENGTH", length), ("POSITIONS", positions), ("SIZE", size)):
        monkeypatch.setitem(globals(), name, number)
    check(Written().model(), tmp_path, joined=False)


@pytest.mark.parametrize("names", ["q", "k", "v", "qk", "qkv"])
@pytest.mark.parametrize("zeroed", [False, True])
def test_nan_stays_nan(zeroed, names, tmp_path):
    def with_zeros(graph, soft):
        return graph.op("Where", graph.op("IsNaN", soft), graph.number(np.float32(0)), soft)

    graph = Written().model(weights=with_zeros if zeroed else None)
    feed = feed_of(graph)
    for row, name in enumerate(names):
        feed[name][0, 5, row] = np.nan
    ours, theirs = run(graph, tmp_path, feed)
    np.testing.assert_array_equal(np.isnan(ours[0]), np.isnan(theirs[0]))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_choice_drops_scores_that_are_no_number(number, tmp_path):
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))

    def chosen(graph, product):
        shown = graph.op("Less", "m", graph.number(np.float32(0)))
        return graph.op("Where", shown, product, graph.number(np.float32(-np.inf)))

    graph = written.model(scores=chosen)
    mask = np.where(np.indices((BATCH, 1, 1, POSITIONS))[3] < 20, -1, 1).astype(np.float32)
    feed = feed_of(graph, m=mask)
    feed["k"][:, 30] = number
    assert is_joined(graph, tmp_path)
    ours, theirs = run(graph, tmp_path, feed)
    assert np.isfinite(theirs[0]).all()
    assert close(ours, theirs)


def test_a_mask_within_a_choice_is_left_alone(tmp_path):
    """Both hide: their sum would be −∞ where the choice gives the least number."""
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))
    low = np.finfo(np.float32).min

    def chosen(graph, product):
        shown = graph.op("Less", "m", graph.number(np.float32(0)))
        both = graph.op("Add", product, graph.op("Where", shown, graph.number(np.float32(0)), graph.number(low)))
        return graph.op("Where", shown, both, graph.number(low))

    mask = np.ones((BATCH, 1, 1, POSITIONS), np.float32)
    mask[0, ..., :7] = -1
    check(written.model(scores=chosen), tmp_path, joined=False, m=mask)


def test_axes_that_are_reversed_without_being_named(tmp_path):
    """A block that is not local: pixels attend to pixels, and keys are no transpose of anything."""
    nodes = [
        helper.make_node("Reshape", ["q", "flat"], ["q3"]),
        helper.make_node("Transpose", ["q3"], ["qt"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["k", "flat"], ["k3"]),
        helper.make_node("Reshape", ["v", "flat"], ["v3"]),
        helper.make_node("Transpose", ["v3"], ["vt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qt", "k3"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "vt"], ["o"]),
        helper.make_node("Transpose", ["o"], ["y"]),
    ]
    inputs = [value(name, (BATCH, 16, 8, 8)) for name in "qkv"]
    check(model_of(nodes, inputs, ["y"], {"flat": np.array([BATCH, 16, 64])}), tmp_path)


@pytest.mark.parametrize(("opset", "joined"), [(11, False), (13, True)])
def test_the_axis_of_a_softmax_that_names_none(opset, joined, tmp_path):
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = [value("q", (1, 64, 16)), value("k", (1, 16, 48)), value("v", (1, 48, 16))]
    check(model_of(nodes, inputs, ["y"], opset=opset), tmp_path, joined=joined)


def test_constants_are_keys_and_values(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    numbers = {name: rng.standard_normal(shape).astype("f") for name, shape in (("k", (2, 16, 48)), ("v", (2, 48, 16)))}
    check(model_of(nodes, [value("q", (2, 64, 16))], ["y"], numbers), tmp_path)


def test_layers_share_what_they_make_of_a_mask(tmp_path):
    written = Written()
    written.inputs.append(value("m", (BATCH, 1, 1, POSITIONS)))
    shown = written.op("Less", "m", written.number(np.float32(0)))
    low = written.number(np.float32(-np.inf))
    for to in ("y", "z"):
        product = written.op("MatMul", written.heads("q"), written.heads("k", turned=True))
        soft = written.op("Softmax", written.op("Where", shown, product, low), axis=-1)
        written.op("MatMul", soft, written.heads("v"), to=to)
    graph = model_of(written.nodes, written.inputs, ["y", "z"], written.numbers)
    assert kernels(graph, tmp_path).count("elementwise") == 1
    check(graph, tmp_path)
