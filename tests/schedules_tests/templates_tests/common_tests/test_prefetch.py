"""Prefetches ask for all of the next panel and little else; what they ask for never depends on the numbers."""

import re
from itertools import product
from types import SimpleNamespace

import pytest

from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.matmul import AHEAD
from schedules.templates.cpu.passes import STACKED, compiled
from tests.schedules_tests.programs import conv_case, matmul_case

WIDE = Target(kind="llvm", isa="avx512", threads=2)
SCRIPT = SimpleNamespace(Select=lambda condition, one, other: one if condition else other)
LOOP = re.compile(r"^( *)for (.+) in (?:T\.parallel|T\.unroll|T\.vectorized|T\.grid|range)\((.+)\):$")


def asked(func, rank):
    """Values of the fused loop → vectors that the job asks for, by running the loops around the prefetches."""
    loops, by_value = [], {}
    for line in str(func.script()).splitlines():
        depth = len(line) - len(line.lstrip())
        loops = [loop for loop in loops if loop[0] < depth]
        if match := LOOP.match(line):
            sizes = [int(size) for size in re.findall(r"T\.int64\((\d+)\)", match[3])]
            loops += [(depth, name, size) for name, size in zip(match[2].split(", "), sizes, strict=True)]
        if "llvm.prefetch" in line:
            inner = re.search(r"address_of\(\w+\[(.*)\]\)", line)[1]
            index = inner.removeprefix("T.int64(0), " * (rank - 2)).removesuffix(", T.int64(0)")
            code = compile(re.sub(r"T\.int64\((-?\d+)\)", r"\1", index), "index", "eval")
            for values in product(*(range(size) for _, _, size in loops)):
                names = dict(zip((name for _, name, _ in loops), values, strict=True))
                by_value.setdefault(values[0], set()).add(eval(code, {"T": SCRIPT}, names))
    return by_value


def config(space, **wanted):
    """The first config of ``space`` with these knobs."""
    return next(c for c in map(space.config, space.rows) if all(c.integer(k) == v for k, v in wanted.items()))


@pytest.mark.parametrize("unroll", [1, 2, 8])
@pytest.mark.parametrize(("rows", "outer"), [(8, 0), (32, 0), (32, 1)])
def test_all_of_the_next_panel(unroll, rows, outer):
    func = matmul_case("m", 32, 64, 6, 16).func
    chosen = config(claim(func, WIDE).space, tm=8, tn=3, rows=rows, unroll=unroll, outer=outer, depth=64)
    vectors = asked(lower(func, chosen, WIDE).mod["main"], 3)
    panel, jobs = 3 * 64, 32 // rows
    for number in range(2):
        wanted = set(range((number + 1) * panel, (number + 2) * panel))
        got = set().union(*(vectors[number * jobs + job] for job in range(jobs)))
        assert wanted <= got
        assert len(got) <= 2 * len(wanted)


@pytest.mark.parametrize("tn", [1, 2])
def test_all_of_the_next_chunk(tn):
    func = matmul_case("m", 32, 1536, 4, 16).func
    chosen = config(claim(func, WIDE).space, tm=8, tn=tn, rows=32, unroll=8, outer=0, depth=768)
    vectors = asked(lower(func, chosen, WIDE).mod["main"], 3)
    assert set(range(768, 1536)) <= vectors[0]  # behind the first chunk, the block's second
    assert set(range(tn * 1536, tn * 1536 + 768)) <= vectors[0]  # behind that, the next panel's first


@pytest.mark.parametrize("outer", [0, 1])
def test_all_of_a_convolution_s_next_blocks(outer):
    func = conv_case("c", (1, 2, 8, 8, 16), (4, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1)).func
    space = claim(func, WIDE).space
    chosen = config(space, algorithm=0, to=2, th=1, tw=8, unroll=4, rows=8, pad=0, outer=outer, depth=2)
    vectors = asked(lower(func, chosen, WIDE).mod["main"], 6)
    panel = 2 * 2 * 9 * 16
    assert set(range(panel, 2 * panel)) <= vectors[0]


@pytest.mark.parametrize("epilogue", [True, False])
@pytest.mark.parametrize(("tn", "unroll"), [(1, 1), (2, 4), (3, 8)])
def test_a_vector_asks_for_later_weights_of_its_own_panels(tn, unroll, epilogue):
    """Beyond the end of a panel for the first ones of the panel that takes its place in the next job."""
    func = matmul_case("m", 1, 256, 6, 16, epilogue=epilogue).func
    chosen = config(claim(func, WIDE).space, tm=1, tn=tn, rows=1, unroll=unroll, outer=0, depth=256)
    vectors, ahead = asked(lower(func, chosen, WIDE).mod["main"], 3), AHEAD // 64
    for job in range(6 // tn):
        own = {((job * tn + panel) * 256) + k for panel in range(tn) for k in range(ahead, 256)}
        later = {((job + 1) * tn + panel) * 256 + k for panel in range(tn) for k in range(ahead)}
        assert vectors[job] == own | later


def test_sums_of_a_vector_stay_in_registers():
    func = matmul_case("m", 1, 256, 6, 16, epilogue=False).func
    chosen = config(claim(func, WIDE).space, tm=1, tn=3, rows=1, unroll=4, outer=0, depth=256)
    code = compiled(lower(func, chosen, WIDE).mod["main"], "main", tvm_target(WIDE)).mod.inspect_source("ll")
    assert "call void @llvm.prefetch" in code
    assert code.count("= phi <16 x float>") >= 3


def test_sums_of_their_own_where_nothing_follows():
    func = conv_case("c", (1, 2, 8, 8, 16), (4, 2, 1, 1, 16, 16), epilogue=False).func
    space = claim(func, WIDE).space
    chosen = config(space, algorithm=0, to=2, th=1, tw=8, unroll=4, rows=8, pad=0, outer=0, depth=2)
    lowered = lower(func, chosen, WIDE).mod["main"]
    assert set(range(2 * 2 * 16, 2 * 2 * 2 * 16)) <= asked(lowered, 6)[0]
    # Summed in the result, they would be stored before every prefetch and loaded again.
    assert compiled(lowered, "main", tvm_target(WIDE)).mod.inspect_source("ll").count("= phi <16 x float>") >= 2 * 8


def test_sums_of_a_tile_lie_on_the_stack():
    func = matmul_case("m", 32, 64, 6, 16).func
    chosen = config(claim(func, WIDE).space, tm=8, tn=3, rows=32, unroll=8, outer=0, depth=64)
    assert 1024 < 8 * 3 * 16 * 4 < STACKED  # TVM would ask its runtime for these
    code = compiled(lower(func, chosen, WIDE).mod["main"], "main", tvm_target(WIDE)).mod.inspect_source("ll")
    assert "call void @llvm.prefetch" in code
    assert not re.search(r"call .*Workspace", code)
