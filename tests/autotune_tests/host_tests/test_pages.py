"""Memory in huge pages."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from autotune.host import pages
from autotune.host.pages import ALIGNMENT, PAGE, SMALL, mapped_file, new_spelling, paged

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("size", [1, ALIGNMENT + 1, SMALL, SMALL + 1, PAGE, 3 * PAGE + 5])
def test_it_is_zeroed_aligned_writable_and_of_the_size(size: int) -> None:
    memory = paged(size)
    assert memory.dtype == np.uint8
    assert memory.shape == (size,)
    assert memory.ctypes.data % (PAGE if size > SMALL and hasattr(mmap, "MADV_HUGEPAGE") else ALIGNMENT) == 0
    assert not memory.any()
    memory[:] = 7
    assert (memory == 7).all()


def test_two_pieces_of_memory_share_nothing_and_outlive_their_makers() -> None:
    first, second = paged(2 * PAGE)[5:], paged(2 * PAGE)
    first[:] = 1
    assert not second.any()
    assert first.sum() == first.size


def test_a_system_that_refuses_gives_ordinary_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 10_000, raising=False)
    memory = paged(2 * PAGE)
    memory[:] = 3
    assert memory.sum(dtype=np.int64) == 6 * PAGE


def test_a_system_without_huge_pages_gives_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    memory = paged(2 * PAGE)
    assert memory.ctypes.data % ALIGNMENT == 0
    assert not memory.any()


@pytest.mark.skipif(
    not THP.exists() or "[never]" in THP.read_text(), reason="this system gives no huge pages to those who ask"
)
def test_the_system_is_asked_for_huge_pages() -> None:
    memory = paged(4 * PAGE)
    address = memory.ctypes.data
    flags = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(match[1], 16) <= address < int(match[2], 16)
        elif line.startswith("VmFlags:") and inside:
            flags = line.split()
    assert flags is not None
    assert "hg" in flags


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux counts anonymous memory")
def test_a_mapped_file_takes_no_memory_of_this_process_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)) * (64 << 10))

    def anonymous_kb() -> int:
        text = Path("/proc/self/smaps_rollup").read_text()
        return sum(int(number) for number in re.findall(r"Anonymous: +([0-9]+) kB", text))

    before = anonymous_kb()
    memory = mapped_file(tmp_path / "f")
    assert int(memory[:1024].sum()) == 4 * sum(range(256))
    assert anonymous_kb() - before < 2 << 10  # of 16 MiB


def place(array):
    return array.__array_interface__["data"][0]


def test_addresses_are_where_arrays_lie():
    whole = np.arange(24.0).reshape(4, 6)
    fixed = whole.copy()
    fixed.flags.writeable = False
    arrays = [whole, whole[1:, 2:], whole[::-1], whole.T, fixed, np.zeros(()), np.zeros((0, 3)), whole.view(np.uint8)]
    assert pages.addresses(arrays) == [array.ctypes.data for array in arrays]


def test_memory_of_results_comes_back_when_nobody_holds_a_part_of_them(monkeypatch):
    monkeypatch.setattr(pages, "FRESH_BYTES", 1 << 10)
    memory = pages.RecycledMemory()
    shape, dtype = (32, 16), np.dtype(np.float32)
    first = memory.maker(shape, dtype)()
    last_row, where = first[-1], place(first)
    del first
    second = memory.maker(shape, dtype)()
    assert place(second) != where, "a row of the first is held"
    last_row[...] = 1.0
    del last_row
    third = memory.maker(shape, dtype)()
    assert place(third) == where
    assert not np.shares_memory(second, third)
    assert (third.shape, third.dtype) == (shape, dtype)
    assert place(memory.maker((4,), dtype)()) != where


def test_memory_of_results_is_kept_for_a_few_and_lives_as_long_as_its_holders(monkeypatch):
    monkeypatch.setattr(pages, "FRESH_BYTES", 1)
    memory = pages.RecycledMemory()
    held = [memory.maker((100,), np.dtype(np.int64))() for _ in range(3 * pages.MOST_RECYCLED)]
    for number, array in enumerate(held):
        array[...] = number
    assert [int(array.min()) for array in held] == [int(array.max()) for array in held] == list(range(len(held)))
    assert len(memory._kept) == pages.MOST_RECYCLED


def test_a_replaced_library_is_loaded_anew_and_needs_no_temporary_folder(tmp_path: Path) -> None:
    path, loaded = tmp_path / "x.so", []
    for number in range(1, 4):
        fresh = tmp_path / "fresh.so"
        command = ["gcc", "-shared", "-x", "c", "-", "-o", str(fresh)]
        subprocess.run(command, input=f"int number(void) {{ return {number}; }}".encode(), check=True)
        fresh.replace(path)
        loaded.append(ctypes.CDLL(new_spelling(path)))
    assert [library.number() for library in loaded] == [1, 2, 3]
    spelled = {new_spelling(path) for _ in range(5000)}
    assert len(spelled) == 5000
    assert all(Path(text).samefile(path) and len(text) < len(str(path)) + 64 for text in spelled)
