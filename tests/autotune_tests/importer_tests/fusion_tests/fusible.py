"""Random graphs full of what fusions look for: scales, shifts, products and moves, with neighbours that forbid most.

Values are read by any number of nodes, bodies and outputs; constants lie along any axes, are shared, and are neutral at
times; optional inputs are left out; data is fp32, fp16, bf16 or fp64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autotune.host.dtypes import numpy_type

Array = np.ndarray[Any, Any]

KINDS = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: numpy_type("bfloat16"),
    TensorProto.DOUBLE: np.float64,
}


class Fusible:
    """Grows one graph.

    Args:
        rng: of every choice.
        kind: element type of the data.
    """

    def __init__(self, rng: np.random.Generator, kind: int) -> None:
        self.rng, self.kind = rng, kind
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[str] = []
        self._count = 0
        for shape in ((2, 4, 5, 6), (4, 6), (2, 3, 6)):
            name = f"in{len(self.inputs)}"
            self.inputs.append(name)
            self.shapes[name] = shape

    # names and constants

    def fresh(self) -> str:
        """A name, now and then one that an importer might invent."""
        self._count += 1
        names = [*self.shapes]
        stem = names[self.rng.integers(len(names))] if self.rng.random() < 0.1 else "v"
        return (
            f"{stem}/{['Mul', 'scaled', 'Reshape'][self._count % 3]}/{self._count}"
            if stem != "v"
            else f"v{self._count}"
        )

    def constant(self, shape: tuple[int, ...], neutral: float | None = None) -> str:
        """A constant near one, an earlier one of this shape, or one that changes nothing."""
        if self.rng.random() < 0.15:
            for name, array in self.weights.items():
                if array.shape == shape and array.dtype == KINDS[self.kind]:
                    return name
        name = f"k{len(self.weights)}"
        values = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1, 1], shape)
        if neutral is not None and self.rng.random() < 0.15:
            values = np.full(shape, neutral)
        self.weights[name] = np.asarray(values, KINDS[self.kind])
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        name = f"k{len(self.weights)}"
        self.weights[name] = np.array(values, np.int64)
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        """One node; its output."""
        name = self.fresh()
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        self.shapes[name] = tuple(int(size) for size in shape)
        return name

    def pick(self, rank: int | None = None) -> str:
        """A value, one of the last ones mostly."""
        names = [name for name, shape in self.shapes.items() if rank is None or len(shape) == rank]
        behind = int(self.rng.geometric(0.7)) if self.rng.random() < 0.8 else int(self.rng.integers(1, len(names) + 1))
        return names[-min(behind, len(names))]

    # what is grown

    def arithmetic(self) -> str:
        """A constant on any side, along one axis, all or none, with ones in front or without."""
        x = self.pick()
        shape, rng = self.shapes[x], self.rng
        sizes = [size if rng.random() < 0.3 else 1 for size in shape]
        if shape and rng.random() < 0.6:
            sizes = [1] * len(shape)
            axis = 1 % len(shape) if rng.random() < 0.5 else len(shape) - 1
            sizes[axis] = shape[axis]
        while sizes and sizes[0] == 1 and rng.random() < 0.6:
            sizes = sizes[1:]
        op = str(rng.choice(["Mul", "Add", "Sub", "Div"]))
        other = self.constant(tuple(sizes), float(op in ("Mul", "Div")))
        inputs = [x, other] if rng.random() < 0.7 or op == "Div" else [other, x]
        return self.add(op, inputs, shape)

    def convolution(self) -> str:
        """A Conv or ConvTranspose, grouped or not, with or without a bias, perhaps behind a Pad."""
        x, rng = self.pick(4), self.rng
        n, c, h, w = self.shapes[x]
        groups = int(rng.choice([g for g in (1, 2, c) if c % g == 0]))
        if rng.random() < 0.3:
            per_group = int(rng.integers(1, 4))
            inputs = [
                x,
                self.constant((c, per_group, 2, 2)),
                *([self.constant((per_group * groups,))] * int(rng.random() < 0.5)),
            ]
            return self.add("ConvTranspose", inputs, (n, per_group * groups, h + 1, w + 1), group=groups)
        filters, pads, auto = groups * int(rng.integers(1, 4)), [int(p) for p in rng.integers(0, 2, 4)], {}
        if rng.random() < 0.4:
            amounts, axes = [int(p) for p in rng.integers(-1 if min(h, w) > 3 else 0, 3, 4)], bool(rng.random() < 0.5)
            before, behind = amounts[:2], amounts[2:]
            if rng.random() < 0.7:
                before, behind = [abs(p) for p in before], [abs(p) for p in behind]
            full = [*before, *behind] if axes else [0, 0, *before, 0, 0, *behind]
            value = ["", self.constant(()), "zero"][int(rng.integers(3))]
            self.weights.setdefault("zero", np.zeros((), KINDS[self.kind]))
            h, w = h + before[0] + behind[0], w + before[1] + behind[1]
            inputs = [x, self.ints(*full), value, *([self.ints(-2, -1)] if axes else [])]
            x = self.add("Pad", inputs, (n, c, h, w))
        if rng.random() < 0.2:
            pads, auto = [0] * 4, {"auto_pad": "VALID"}
        rows, columns = h + pads[0] + pads[2] - 1, w + pads[1] + pads[3] - 1
        if rows < 1 or columns < 1:
            return x
        inputs = [
            x,
            self.constant((filters, c // groups, 2, 2)),
            *([self.constant((filters,))] * int(rng.random() < 0.5)),
        ]
        more = auto or {"pads": pads}
        return self.add("Conv", inputs, (n, filters, rows, columns), group=groups, **more)

    def normalised(self, image: str = "") -> str:
        """A batch norm by constants."""
        x = image or self.pick(4)
        channels = self.shapes[x][1]
        self.weights[f"var{channels}"] = np.linspace(0.5, 2, channels).astype(KINDS[self.kind])
        inputs = [x, *(self.constant((channels,)) for _ in range(3)), f"var{channels}"]
        return self.add("BatchNormalization", inputs, self.shapes[x], epsilon=1e-3)

    def side_by_side(self) -> str:
        """The sum of two branches of an image: filters of one or three taps, apart or not, or another scale."""
        x, rng = self.pick(4), self.rng
        if self.kind == TensorProto.DOUBLE:  # ONNX Runtime has no convolutions of it, and there are others
            return x
        n, c, h, w = self.shapes[x]
        groups, strided = int(rng.choice([g for g in (1, 2, c) if c % g == 0])), bool(rng.random() < 0.3)
        filters = c if rng.random() < 0.7 else 2 * groups
        sizes = (n, filters, *((-(-size // 2) for size in (h, w)) if strided else (h, w)))
        branches = []
        for _ in range(2):
            if filters == c and not strided and rng.random() < 0.3:
                branches.append(self.normalised(x))
                continue
            taps, apart = int(rng.choice([1, 3])), int(rng.choice([1, 2]))
            ahead = apart * (taps // 2)
            more = {"strides": [2, 2]} if strided else {}
            inputs = [x, self.constant((filters, c // groups, taps, taps))]
            inputs += [self.constant((filters,))] * int(rng.random() < 0.5)
            places = {"pads": [ahead] * 4, "dilations": [apart] * 2, "group": groups}
            branches.append(self.add("Conv", inputs, sizes, **places, **more))
        return self.add(str(rng.choice(["Add", "Sub"])), branches, sizes)

    def product(self) -> str:
        """A MatMul, or a Gemm of any form, and perhaps a bias of any shape that fits."""
        rng = self.rng
        x = self.pick(2 if rng.random() < 0.5 else 3)
        shape, columns = self.shapes[x], int(rng.integers(1, 6))
        if len(shape) == 2 and rng.random() < 0.7:
            turned, across = bool(rng.random() < 0.5), bool(rng.random() < 0.2)
            rows, depth = shape[::-1] if across else shape
            weight = self.constant((columns, depth) if turned else (depth, columns))
            biases = [[], [self.constant((columns,))], [self.constant((rows, 1))], [self.constant(())]]
            attributes = {"alpha": 1.5, "beta": 0.5} if rng.random() < 0.3 else {}
            inputs = [x, weight, *biases[int(rng.integers(4))]]
            flags = {"transA": int(across), "transB": int(turned)}
            return self.add("Gemm", inputs, (rows, columns), **attributes, **flags)
        product = self.add("MatMul", [x, self.constant((shape[-1], columns))], (*shape[:-1], columns))
        if rng.random() < 0.7:
            sizes = [(columns,), (), (1, columns), (shape[-2], 1), (shape[-2], columns)][int(rng.integers(5))]
            both = [product, self.constant(sizes, 0.0)]
            product = self.add("Add", both if rng.random() < 0.5 else both[::-1], (*shape[:-1], columns))
        return product

    def move(self) -> str:
        """A Transpose, a Reshape of any kind, new axes, or a slice; one in four changes nothing."""
        rng = self.rng
        x = self.pick()
        shape, op = self.shapes[x], str(rng.choice(["Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Expand"]))
        rank = len(shape)
        if op == "Transpose":
            for _ in range(int(rng.integers(1, 3)) if rank else 0):
                order = [int(axis) for axis in (range(rank) if rng.random() < 0.25 else rng.permutation(rank))]
                shape = tuple(shape[axis] for axis in order)
                x = self.add(op, [x], shape, **({} if order == sorted(order, reverse=True) else {"perm": order}))
            return x
        if op == "Unsqueeze" and rank < 4:
            for axes in range(rank + 1, min(4, rank + int(rng.integers(1, 3))) + 1):
                axis = int(rng.integers(-axes, axes))
                place = axis % axes
                shape = (*shape[:place], 1, *shape[place:])
                x = self.add(op, [x, self.ints(axis)], shape)
            return x
        if op == "Squeeze" and 1 in shape:
            axis = shape.index(1)
            return self.add(op, [x, self.ints(axis)], (*shape[:axis], *shape[axis + 1 :]))
        if op == "Slice" and rank:
            axis, whole = int(rng.integers(rank)), rng.random() < 0.4
            start, step = (0, 1) if whole else (int(rng.integers(shape[axis])), int(rng.choice([1, 2])))
            sliced = (*shape[:axis], len(range(start, shape[axis], step)), *shape[axis + 1 :])
            return self.add(op, [x, self.ints(start), self.ints(9999), self.ints(axis), self.ints(step)], sliced)
        if op == "Expand":
            return self.add(op, [x, self.ints(*shape)], shape)
        return self._reshaped(x)

    def _reshaped(self, x: str) -> str:
        shape, rng = self.shapes[x], self.rng
        count = int(np.prod(shape))
        if rng.random() < 0.25:
            return self.add("Reshape", [x, self.ints(*shape)], shape)
        splits = [factor for factor in (1, 2, 3, 4, 6) if count % factor == 0]
        first = int(rng.choice(splits))
        second = int(rng.choice([factor for factor in splits if count // first % factor == 0]))
        ways = [(-1,), (first, -1), (first, second, -1), (first, second, 1, -1)]
        shape_made = ways[int(rng.integers(len(ways)))]
        if rng.random() < 0.4 and len(shape) > 1:
            shape_made = (*shape[:-2], -1, shape[-1]) if rng.random() < 0.5 else (first, -1, shape[-1])
            if count // shape[-1] % int(np.prod([size for size in shape_made[:-1] if size > 0])):
                shape_made = (-1,)
        known = int(np.prod([size for size in shape_made if size > 0]))
        shape_made = tuple(count // known if size < 0 else size for size in shape_made)
        y = self.add("Reshape", [x, self.ints(*shape_made)], shape_made)
        if rng.random() < 0.2:  # to a shape that is computed
            size = f"size{len(self.nodes)}"
            self.nodes.append(helper.make_node("Shape", [y], [size], f"n{len(self.nodes)}"))
            y = self.add("Reshape", [x, size], shape_made)
        if 1 in shape_made and rng.random() < 0.5:
            axis, place = shape_made.index(1), int(rng.integers(len(shape_made)))
            order = [old_axis for old_axis in range(len(shape_made)) if old_axis != axis]
            order.insert(place, axis)
            y = self.add("Transpose", [y], tuple(shape_made[old_axis] for old_axis in order), perm=order)
        if rng.random() < 0.3:
            y = self.add("Reshape", [y, self.ints(-1)], (count,))
        return y

    def reduction(self) -> str:
        """A reduction without its axis, which is put back mostly."""
        x = self.pick()
        shape, rng = self.shapes[x], self.rng
        if not shape:
            return x
        axis = int(rng.integers(len(shape)))
        reduced = (*shape[:axis], *shape[axis + 1 :])
        if rng.random() < 0.5:
            y = self.add("ReduceSum", [x, self.ints(axis)], reduced, keepdims=0)
        else:
            y = self.add(str(rng.choice(["ReduceMean", "ReduceMax"])), [x, self.ints(axis)], reduced, keepdims=0)
        if rng.random() < 0.7:
            place = axis if rng.random() < 0.8 else int(rng.integers(len(shape)))
            y = self.add("Unsqueeze", [y, self.ints(place)], (*reduced[:place], 1, *reduced[place:]))
        return y

    def joined(self) -> str:
        """A Concat, of another one mostly, perhaps of one part."""
        x, rng = self.pick(), self.rng
        shape = self.shapes[x]
        if not shape or max(shape) > 40:
            return x
        axis = int(rng.integers(len(shape)))
        times = int(rng.integers(1, 4))
        y = self.add("Concat", [x] * times, (*shape[:axis], times * shape[axis], *shape[axis + 1 :]), axis=axis)
        if rng.random() < 0.6:
            again = axis if rng.random() < 0.7 else int(rng.integers(len(shape)))
            part = self.shapes[y]
            parts = [y, self.constant(part)] if rng.random() < 0.8 else [y, y]
            y = self.add("Concat", parts, (*part[:again], 2 * part[again], *part[again + 1 :]), axis=again - len(part))
        return y

    def bounded(self) -> str:
        """Two Clips that differ in which bound is left out, a Cast that changes nothing, an empty Pad, or a Split."""
        x, rng = self.pick(), self.rng
        shape = self.shapes[x]
        choice = int(rng.integers(4))
        if choice == 0:
            low = self.constant(())
            y = self.add("Clip", [x, low], shape)
            z = self.add("Clip", [x, "", low], shape)
            return self.add("Add", [y, z], shape)
        if choice == 1:
            return self.add("Cast", [x], shape, to=self.kind)
        if choice == 2 and shape:
            return self.add("Pad", [x, self.ints(*[0] * 2 * len(shape))], shape)
        if not shape:
            return x
        return self.add("Split", [x, self.ints(shape[0])], shape, axis=0)

    def again(self) -> str:
        """A node once more, which computes the same."""
        node = self.nodes[int(self.rng.integers(len(self.nodes)))] if self.nodes else None
        if node is None or node.op_type in ("If", "Less", "Shape"):
            return self.pick()
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[0], copy.name = self.fresh(), f"n{len(self.nodes)}"
        self.nodes.append(copy)
        self.shapes[copy.output[0]] = self.shapes[node.output[0]]
        return str(copy.output[0])

    def branch(self) -> str:
        """An If whose bodies read values from around it."""
        x = self.pick()
        shape, name = self.shapes[x], self.fresh()
        self.weights.setdefault("flag_limit", np.asarray(1e4, KINDS[self.kind]))
        flag = f"flag{len(self.nodes)}"
        total = self.add("ReduceSum", [x], (), keepdims=0)
        self.nodes.append(helper.make_node("Less", [total, "flag_limit"], [flag], f"n{len(self.nodes)}"))
        bodies = {}
        for key, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
            out = f"{name}/{key}"
            node = helper.make_node(op, [x], [out], out)
            bodies[key] = helper.make_graph([node], key, [], [helper.make_tensor_value_info(out, self.kind, shape)])
        self.nodes.append(helper.make_node("If", [flag], [name], f"n{len(self.nodes)}", **bodies))
        self.shapes[name] = shape
        return name

    def model(self, steps: int) -> ModelProto:
        """A graph of ``steps`` steps, whose outputs are what nothing reads and a few values besides."""
        ways: list[Callable[[], str]] = [
            *[self.arithmetic] * 6,
            *[self.convolution, self.product, self.move] * 3,
            self.side_by_side,
            *[self.normalised, self.reduction, self.joined, self.bounded, self.again] * 2,
            self.branch,
        ]
        for _ in range(steps):
            ways[int(self.rng.integers(len(ways)))]()
        read = {name for node in self.nodes for name in node.input}
        outputs = [str(node.output[0]) for node in self.nodes if node.op_type not in ("Less", "Shape")]
        ends = [name for name in outputs if name not in read or self.rng.random() < 0.1]
        values = [helper.make_tensor_value_info(name, self.kind, self.shapes[name]) for name in (*self.inputs, *ends)]
        count = len(self.inputs)
        constants = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "fusible", values[:count], values[count:], constants)
        opset = 22 if self.kind == TensorProto.BFLOAT16 else 18  # the first whose convolutions take it
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
