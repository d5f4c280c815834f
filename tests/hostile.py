"""Model files that are broken or made to hurt: what each does, and a command that imports them all.

``python -m tests.hostile FOLDER`` writes every one of them to a folder of its own below FOLDER, imports it, and prints
how it was refused, after how long and with how much memory.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from schedules.vocabulary.errors import ModelError

SECRET = bytes(range(256)) * 4
SECRET_NAME = "secret.bin"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Attack = Callable[[Path], Path]
ATTACKS: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    """Enter a function that writes its model into a folder and returns the model's path."""

    def enter(write: Attack) -> Attack:
        ATTACKS[name] = write
        return write

    return enter


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    return written(model.SerializeToString(), folder)


def written(data: bytes, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def model_of(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, object] | None = None,
    shape: Sequence[int | str] = (1, 4),
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    inputs: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """A model of the input ``x`` and others."""
    graph = helper.make_graph(
        nodes,
        "hostile",
        [helper.make_tensor_value_info("x", FLOAT, shape), *inputs],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def node(name: str, inputs: str, output: str = "y", **attributes: object) -> onnx.NodeProto:
    """``node("Add", "x w")``."""
    return helper.make_node(name, inputs.split(), output.split(), **attributes)


def plain(name: str, nodes: Sequence[onnx.NodeProto], weights: dict[str, object] | None = None, **more: object) -> None:
    """Enter a model that is hostile by its graph."""

    @attack(name)
    def write(folder: Path) -> Path:
        return saved(model_of(nodes, weights, **more), folder)  # type: ignore[arg-type]


def external(
    folder: Path, location: str, length: object = None, offset: object = None, shape: Sequence[int] = (16, 16)
) -> Path:
    """A model whose weight claims to lie at ``location``; the true data is in ``w.bin``."""
    (folder / "w.bin").write_bytes(SECRET)
    tensor = TensorProto(name="w", data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("length", length), ("offset", offset)):
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    model = model_of([node("MatMul", "x w")], shape=(1, shape[0]))
    model.graph.initializer.append(tensor)
    return saved(model, folder)


for place in (
    f"../{SECRET_NAME}",
    f"data/../../{SECRET_NAME}",
    "/etc/passwd",
    f"..\\{SECRET_NAME}",
    "C:\\secret.bin",
    "",
    "w\0.bin",
    "..",
    "/proc/self/environ",
    "missing.bin",
    "./../model/../" + SECRET_NAME,
):
    ATTACKS[f"external data at {place!r}"] = lambda folder, place=place: external(folder, place)

for length, offset in (
    (1023, None),
    (4096, None),
    (1024, 1),
    (1024, -8),
    (2**40, 0),
    ("many", 0),
    (1024, "1e3"),
    (-1, 0),
):
    ATTACKS[f"external data of {length} bytes at {offset}"] = lambda folder, length=length, offset=offset: external(
        folder, "w.bin", length, offset
    )


@attack("external data through a link")
def _link(folder: Path) -> Path:
    (folder / "link.bin").symlink_to(folder.parent / SECRET_NAME)
    return external(folder, "link.bin")


@attack("external data through a linked folder")
def _linked_folder(folder: Path) -> Path:
    (folder / "linked").symlink_to(folder.parent)
    return external(folder, f"linked/{SECRET_NAME}")


@attack("external data through a hard link")
def _hard_link(folder: Path) -> Path:
    os.link(folder.parent / SECRET_NAME, folder / "hard.bin")
    return external(folder, "hard.bin")


@attack("external data in a pipe that nobody fills")
def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return external(folder, "pipe")


ATTACKS["external data of 2 GiB in a file of 1 KiB"] = lambda folder: external(folder, "w.bin", shape=(2**15, 2**14))
ATTACKS["external data of 2^64 bytes"] = lambda folder: external(folder, "w.bin", shape=(2**31, 2**31))

for title, tensor in {
    "negative shape": TensorProto(name="w", data_type=1, dims=[-4], raw_data=b"\0" * 16),
    "a byte too few": TensorProto(name="w", data_type=1, dims=[4], raw_data=b"\0" * 15),
    "a claim of 4 TiB": TensorProto(name="w", data_type=1, dims=[2**40], raw_data=b"\0" * 16),
    "too few numbers": TensorProto(name="w", data_type=1, dims=[4], float_data=[1.0]),
    "no data": TensorProto(name="w", data_type=1, dims=[4]),
    "no type": TensorProto(name="w", data_type=0, dims=[4], raw_data=b"\0" * 16),
    "an unknown type": TensorProto(name="w", data_type=999, dims=[4], raw_data=b"\0" * 16),
}.items():

    @attack(f"a tensor with {title}")
    def _tensor(folder: Path, tensor: TensorProto = tensor) -> Path:
        model = model_of([node("Add", "x w")])
        model.graph.initializer.append(tensor)
        return saved(model, folder)


@attack("a sparse tensor")
def _sparse(folder: Path) -> Path:
    model = model_of([node("Add", "x w")], {"w": np.zeros(4, np.float32)})
    model.graph.sparse_initializer.add().values.name = "s"
    return saved(model, folder)


def int64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


plain("4 TiB out of nothing", [node("ConstantOfShape", "s", "b"), node("Add", "x b")], {"s": int64(2**20, 2**20)})
plain("3.9 GB out of nothing", [node("ConstantOfShape", "s", "b"), node("ReduceSum", "b", "r"), node("Add", "x r")],
      {"s": int64(975_000_000)})  # fmt: skip
plain("a number for every nanosecond", [node("Range", "a b c", "r"), node("ReduceSum", "r", "s"), node("Add", "x s")],
      {"a": np.float32(0), "b": np.float32(1e9), "c": np.float32(1)})  # fmt: skip
plain("expanded to 16 TiB", [node("Expand", "x s")], {"s": int64(2**20, 2**20, 4)})
plain("tiled to 16 TiB", [node("Tile", "x s")], {"s": int64(2**20, 2**20)})
plain("padded by 2^40", [node("Pad", "x p")], {"p": int64(0, 2**40, 0, 2**40)})
plain("a shape of minus one", [node("ConstantOfShape", "s", "b"), node("Add", "x b")], {"s": int64(-7)})
plain("reshaped to another size", [node("Reshape", "x s")], {"s": int64(3, 5)})
plain("reshaped to two unknowns", [node("Reshape", "x s")], {"s": int64(-1, -1)})
plain("an axis that is not there", [node("Concat", "x x", axis=99)])
plain("a permutation of other axes", [node("Transpose", "x", perm=[0, 7])])
plain("a permutation of one axis twice", [node("Transpose", "x", perm=[0, 0])])
plain("split into less than nothing", [node("Split", "x s", "y z", axis=1)], {"s": int64(-4, 8)})
plain(
    "slices without steps", [node("Slice", "x a b c d")], {"a": int64(0), "b": int64(4), "c": int64(1), "d": int64(0)}
)
plain("gathered from far outside", [node("Gather", "w i", "g"), node("Add", "x g")],
      {"w": np.zeros(4, np.float32), "i": int64(2**40)})  # fmt: skip
plain("one-hot of depth 2^40", [node("OneHot", "i d v", "h"), node("ReduceSum", "h", "s"), node("Add", "x s")],
      {"i": int64(1), "d": int64(2**40), "v": np.array([0, 1], np.float32)})  # fmt: skip
plain("the top million of four", [node("TopK", "x k", "y i")], {"k": int64(10**6)})
plain("resized by 1e9", [helper.make_node("Resize", ["x", "", "s"], ["y"])], {"s": np.array([1e9, 1e9], np.float32)})
plain("an equation that is none", [node("Einsum", "x x", equation="a->b,,->ééé...")])

KERNEL = {"w": np.zeros((4, 4, 3, 3), np.float32)}
IMAGE = {"shape": (1, 4, 8, 8)}
plain("no strides", [node("Conv", "x w", strides=[0, 0])], KERNEL, **IMAGE)
plain("no groups", [node("Conv", "x w", group=0)], KERNEL, **IMAGE)
plain("three groups of four channels", [node("Conv", "x w", group=3)], KERNEL, **IMAGE)
plain("negative dilations", [node("Conv", "x w", dilations=[-1, -1])], KERNEL, **IMAGE)
plain("pads of 2^40", [node("Conv", "x w", pads=[2**40] * 4)], KERNEL, **IMAGE)
plain("a kernel larger than the image", [node("Conv", "x w")], {"w": np.zeros((4, 4, 33, 33), np.float32)}, **IMAGE)
plain("pooled by nothing", [node("MaxPool", "x", kernel_shape=[0, 0])], None, **IMAGE)
plain("an attribute of another type", [node("Conv", "x w", kernel_shape="three")], KERNEL, **IMAGE)
plain("channels that do not fit", [node("Conv", "x w")], {"w": np.zeros((4, 5, 3, 3), np.float32)}, **IMAGE)

plain("a cycle", [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b")])
plain("a node that feeds itself", [node("Add", "x y")])
plain("one name for two tensors", [node("Relu", "x"), node("Sigmoid", "x")])
plain("an input from nowhere", [node("Add", "x nowhere")])
plain("an output from nowhere", [node("Relu", "x", "z")])
plain("an operator of nobody", [node("Bogus", "x")])
plain("an operator of another domain", [node("FusedConv", "x", domain="com.microsoft")], domains=["com.microsoft"])
plain("an operator of the future", [node("Relu", "x")], opset=9999)
plain("an operator of before there were any", [node("Relu", "x")], opset=0)
plain("an input of 4 EiB", [node("Relu", "x")], shape=(2**31, 2**31))
plain("an input of no known shape", [node("Relu", "x")], shape=None)
plain("a quarter of a million nodes", [node("Relu", "x" if i == 0 else f"v{i}", f"v{i + 1}") for i in range(250_000)],
      outputs=["v250000"])  # fmt: skip


def looped(trips: int, body: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
    """A loop that carries ``v``."""
    state = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Identity", "c_in", "c_out"), *body],
        "body",
        [state("i", INT64, []), state("c_in", TensorProto.BOOL, []), state("v", FLOAT, [1, 4])],
        [state("c_out", TensorProto.BOOL, []), state("v_out", FLOAT, [1, 4])],
    )
    return helper.make_node("Loop", ["n", "go", "x"], ["y"], body=graph)


STEP = [node("Add", "v v", "v_out")]
plain("2^62 turns", [looped(2**62, STEP)], {"n": np.int64(2**62), "go": np.array(True)})
plain("a million turns", [looped(10**6, STEP)], {"n": np.int64(10**6), "go": np.array(True)})


def function(name: str, calls: Sequence[str]) -> onnx.FunctionProto:
    """A function that applies ``calls`` one after the other."""
    nodes = [
        helper.make_node(call, [f"v{i}"], [f"v{i + 1}"], domain="local" if call.startswith("f") else "")
        for i, call in enumerate(calls)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["v0"], [f"v{len(calls)}"], nodes, opsets)


for title, functions in {
    "10^12 nodes": [function("f0", ["Relu"] * 10)] + [function(f"f{i}", [f"f{i - 1}"] * 10) for i in range(1, 12)],
    "themselves": [function("f0", ["f0"])],
    "each other": [function("f0", ["f1"]), function("f1", ["f0"])],
    "an unknown operator": [function("f0", ["Relu", "Bogus"])],
}.items():
    plain(f"functions that make {title}" if "nodes" in title else f"functions that call {title}",
          [node(functions[-1].name, "x", domain="local")], functions=functions, domains=["local"])  # fmt: skip


@attack("conditions nested 20 deep")
def _conditions(folder: Path) -> Path:
    chain = [node("Identity", "x", "out")]
    for _ in range(20):
        out = [helper.make_tensor_value_info("out", FLOAT, None)]
        leaf = helper.make_graph([node("Identity", "x", "out")], "leaf", [], out)
        deeper = helper.make_graph(chain, "branch", [], out)
        chain = [helper.make_node("If", ["c"], ["out"], then_branch=deeper, else_branch=leaf)]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
    return saved(model_of(chain, outputs=["out"], inputs=[condition]), folder)


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


@attack("messages nested 5000 deep")
def _nested(folder: Path) -> Path:
    data = b""
    for _ in range(5000):  # a graph in an attribute of a node in a graph
        graph = b"\x0a" + varint(len(data)) + data
        attribute = b"\x32" + varint(len(graph)) + graph
        data = b"\x2a" + varint(len(attribute)) + attribute
    last = b"\x0a" + varint(len(data)) + data
    return written(b"\x08\x08" + b"\x3a" + varint(len(last)) + last, folder)


SOUND = model_of([node("MatMul", "x w")], {"w": np.ones((4, 4), np.float32)}).SerializeToString()
ATTACKS["a file cut short"] = lambda folder: written(SOUND[:-9], folder)
ATTACKS["an empty file"] = lambda folder: written(b"", folder)
ATTACKS["noise"] = lambda folder: written(np.random.default_rng(0).bytes(65536), folder)
ATTACKS["a text"] = lambda folder: written(b"this is no model\n" * 100, folder)
ATTACKS["a length of 2 GiB in ten bytes"] = lambda folder: written(b"\x08\x08\x3a" + varint(2**31) + b"\0\0", folder)
ATTACKS["a name that is no text"] = lambda folder: written(SOUND.replace(b"hostile", b"ho\xff\xfeile"), folder)


@attack("a folder")
def _folder(folder: Path) -> Path:
    (folder / "model.onnx").mkdir()
    return folder / "model.onnx"


@attack("a pipe that nobody fills")
def _model_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "model.onnx")
    return folder / "model.onnx"


@attack("a list of tensors as input")
def _sequence(folder: Path) -> Path:
    model = model_of([node("Relu", "x")])
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    return saved(model, folder)


@attack("complex numbers as input")
def _complex_numbers(folder: Path) -> Path:
    model = model_of([node("Identity", "x")])
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.COMPLEX64
    return saved(model, folder)


def prepared(name: str, folder: Path) -> Path:
    """Write one attack into a folder of its own, beside a secret that is none of its business."""
    (folder / SECRET_NAME).write_bytes(SECRET)
    own = folder / "model"
    own.mkdir()
    return ATTACKS[name](own)


def refusal(path: Path) -> str:
    """How the model is refused; empty if it is imported."""
    try:
        import_model(path, {}, host_target(1))
    except ModelError as error:
        return str(error)
    return ""


def main() -> None:
    """Import them all."""
    root = Path(sys.argv[1])
    refused, slowest = 0, 0.0
    for number, name in enumerate(ATTACKS):
        folder = root / f"{number:03d}"
        folder.mkdir(parents=True)
        path = prepared(name, folder)
        began = time.perf_counter()
        text = refusal(path)
        seconds = time.perf_counter() - began
        slowest = max(slowest, seconds)
        refused += bool(text)
        print(f"{seconds:6.2f} s  {name}: {text or 'IMPORTED'}")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"{refused} of {len(ATTACKS)} refused, the slowest after {slowest:.1f} s, at most {most:.2f} GiB")


if __name__ == "__main__":
    main()
