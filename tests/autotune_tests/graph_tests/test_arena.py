"""Memory planning: what lives together never overlaps, parts lie inside their whole, and reuse happens."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from autotune.graph.arena import Slice, place_tensors, root_of
from autotune.host.pages import KERNEL_ALIGNMENT


@dataclass(frozen=True)
class Life:
    """A tensor of ``size`` bytes, written first in step ``first`` and read last in step ``last``."""

    size: int
    first: int
    last: int


def plan_memory(lives, slices):
    """Offsets and size of the arena for tensors of a program that runs in one order."""
    spans = {}
    for index, life in enumerate(lives):
        root, _ = root_of(index, slices)
        first, last = spans.get(root, (life.first, life.last))
        spans[root] = (min(first, life.first), max(last, life.last))

    def clash(one, other):
        return spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]

    return place_tensors([life.size for life in lives], slices, clash)


@st.composite
def lifetimes(draw):
    count = draw(st.integers(1, 12))
    return [Life(draw(st.integers(1, 500)), number, draw(st.integers(number, count))) for number in range(count)]


@given(lifetimes())
def test_tensors_alive_together_never_overlap(lives):
    offsets, total = plan_memory(lives, {})
    for i, a in enumerate(lives):
        assert offsets[i] % KERNEL_ALIGNMENT == 0
        assert offsets[i] + a.size <= total
        for j, b in enumerate(lives[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]


def test_memory_is_reused_once_free():
    lives = [Life(1024, 0, 1), Life(1024, 1, 2), Life(1024, 2, 3), Life(1024, 3, 4)]
    offsets, total = plan_memory(lives, {})
    assert total == 2048
    assert offsets[0] == offsets[2] != offsets[1] == offsets[3]


def test_parts_lie_in_their_whole_which_lives_as_long_as_any_of_them():
    # 0 and 1 are parts of 2, which is part of 4; 3 lives while 0 already does and must stay clear of all of them.
    lives = [Life(64, 0, 2), Life(128, 1, 2), Life(192, 2, 4), Life(64, 1, 5), Life(256, 4, 5)]
    slices = {0: Slice(2, 0), 1: Slice(2, 64), 2: Slice(4, 64)}
    offsets, total = plan_memory(lives, slices)
    assert offsets[2] == offsets[4] + 64
    assert offsets[0] == offsets[2]
    assert offsets[1] == offsets[2] + 64
    assert offsets[3] >= offsets[4] + 256 or offsets[3] + 64 <= offsets[4]
    assert total == 320
