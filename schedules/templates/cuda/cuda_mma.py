"""A warp's instructions on tensor cores, as device functions: copies to shared memory, loads of fragments, products.

``mma.sync.m16n8`` multiplies 16 rows by 8 columns. Its depth is 32 bytes of every row: 8 words, 16 halves or 32 bytes.
Fragments as in the PTX ISA ("Matrix Fragments for mma.m16n8k…"), with g = lane / 4 and t = lane % 4; a register holds
the 32/w neighbours along k of type width w that begin at the index given:

    rows      a0 (g, t)   a1 (g + 8, t)   a2 (g, t + 4)   a3 (g + 8, t + 4)     (row, register along k)
    columns   b0 (t, g)   b1 (t + 4, g)                                       (register along k, column)
    sums      c0, c1 (g, 2t), (g, 2t + 1)     c2, c3 the same of row g + 8      (row, column)

``ldmatrix`` loads four matrices of 8 rows of 16 bytes; lane l names row l % 8 of matrix l / 8, and gets the register
(g, t) of each. So one loads a0 to a3 of rows that lie contiguous along k, or b0 and b1 of two fragments of columns
that do. Columns of halves that lie contiguous along n are transposed on the way; words of such columns are loaded one
by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir import Var
from tvm.tirx.buffer import buffer_data

ROWS, COLUMNS = 16, 8
"""Rows and columns of one ``mma.sync``."""

STEP_BYTES = 32
"""Depth of one ``mma.sync``, bytes of a row."""

PIECE_BYTES = 16
"""A row of one matrix of ``ldmatrix``, and the longest copy of a thread: tiles are permuted in such pieces."""


@dataclass(frozen=True)
class Multiply:
    """Types that tensor cores multiply.

    Attributes:
        types: operands in shared memory, of rows and columns: TVM's names.
        ptx: types of ``mma.sync``: rows, columns.
        bytes: per element.
        sums: type of sums and results.
    """

    types: tuple[str, str]
    ptx: tuple[str, str]
    bytes: int
    sums: str

    @property
    def depth(self) -> int:
        """Elements along k of one ``mma.sync``."""
        return STEP_BYTES // self.bytes

    @property
    def words(self) -> bool:
        """Whether operands are float32 that are rounded to TF32."""
        return self.ptx[0] == "tf32"

    @property
    def instruction(self) -> str:
        """The PTX instruction."""
        sums = "s32" if self.sums == "int32" else "f32"
        return f"mma.sync.aligned.m16n8k{self.depth}.row.col.{sums}.{self.ptx[0]}.{self.ptx[1]}.{sums}"


def _integers(rows: str, columns: str) -> Multiply:
    short = {"int8": "s8", "uint8": "u8"}
    return Multiply((rows, columns), (short[rows], short[columns]), 1, "int32")


MULTIPLIES = {
    "float16": Multiply(("float16", "float16"), ("f16", "f16"), 2, "float32"),
    "bfloat16": Multiply(("bfloat16", "bfloat16"), ("bf16", "bf16"), 2, "float32"),
    "tf32": Multiply(("float32", "float32"), ("tf32", "tf32"), 4, "float32"),
    **{f"{rows}*{columns}": _integers(rows, columns) for rows in ("int8", "uint8") for columns in ("int8", "uint8")},
}
"""``dtype`` of a product's geometry → what multiplies it. Types without an entry have no tensor cores."""

Place = tuple[Var, tirx.Expr | int]
"""A buffer, and the index of an element of it.

Functions get both apart: TVM takes the address of one element for a use of this element alone, and shrinks the buffer.
"""

HEAD = "static __forceinline__ __device__ void"
SHARED = '"r"((unsigned)__cvta_generic_to_shared({}))'


def _call(name: str, parameters: str, body: str, *arguments: Place | tirx.Expr) -> tirx.Stmt:
    """Return a call of the function ``name``, whose definition stands before the kernel once."""
    values: list[tirx.Expr | int] = []
    for argument in arguments:
        values += [buffer_data(argument[0]), argument[1]] if isinstance(argument, tuple) else [argument]
    head = f"template <class T> {HEAD}" if "T*" in parameters else HEAD
    source = f"\n{head} {name}({parameters}) {{\n  {body}\n}}\n"
    return tirx.Evaluate(cuda_func_call(name, *values, source_code=source))


def copy(to: Place, source: tirx.Expr, size: int, wanted: tirx.Expr) -> tirx.Stmt:
    """Begin to copy ``size`` bytes (4, 8 or 16) to shared memory; zeros, and nothing is read, unless ``wanted``."""
    cache = "cg" if size == PIECE_BYTES else "ca"
    return _call(
        f"tune_copy_{size}",
        "T* tile, int to, const void* from, int wanted",
        f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;" '
        f':: {SHARED.format("tile + to")}, "l"(from), "r"(wanted * {size}) : "memory");',
        to,
        source,
        tirx.Cast("int32", wanted),
    )


def commit() -> tirx.Stmt:
    """End a group of copies."""
    return _call("tune_commit", "", 'asm volatile("cp.async.commit_group;" ::: "memory");')


def wait(groups: int) -> tirx.Stmt:
    """Wait until at most ``groups`` of this thread's groups of copies are open."""
    return _call(f"tune_wait_{groups}", "", f'asm volatile("cp.async.wait_group {groups};" ::: "memory");')


def load(registers: Place, row: Place, transposed: bool) -> tirx.Stmt:
    """Load four matrices; ``row`` begins the lane's own 16 bytes."""
    name, trans = ("tune_load_transposed", ".trans") if transposed else ("tune_load", "")
    outputs = ", ".join(f'"=r"(r[at + {number}])' for number in range(4))
    return _call(
        name,
        "unsigned* r, int at, const T* tile, int row",
        f'asm volatile("ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%0, %1, %2, %3}}, [%4];" '
        f': {outputs} : {SHARED.format("tile + row")} : "memory");',
        registers,
        row,
    )


def load_word(register: Place, word: Place) -> tirx.Stmt:
    """Load one word."""
    return _call(
        "tune_load_word",
        "unsigned* r, int at, const T* tile, int word",
        f'asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r[at]) : {SHARED.format("tile + word")} : "memory");',
        register,
        word,
    )


def round_word(register: Place) -> tirx.Stmt:
    """Round a float32 to TF32, to the nearest, halves away from zero."""
    return _call(
        "tune_round",
        "unsigned* r, int at",
        'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[at]) : "f"(__uint_as_float(r[at])));',
        register,
    )


def multiply(kind: Multiply, sums: Place, rows: Place, columns: Place) -> tirx.Stmt:
    """Add the product of two fragments to ``sums``."""
    constraint, c = ("+r", "int") if kind.sums == "int32" else ("+f", "float")
    outputs = ", ".join(f'"{constraint}"(c[c_at + {i}])' for i in range(4))
    inputs = ", ".join(f'"r"({name}[{name}_at + {i}])' for name, count in (("a", 4), ("b", 2)) for i in range(count))
    return _call(
        f"tune_multiply_{'_'.join(kind.ptx)}",
        f"{c}* c, int c_at, const unsigned* a, int a_at, const unsigned* b, int b_at",
        f'asm volatile("{kind.instruction} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};" '
        f": {outputs} : {inputs});",
        sums,
        rows,
        columns,
    )
