"""Compiled code by content: found again, never stale, never half written, never more than its bound."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from autotune.measure import code_cache
from autotune.measure.code_cache import LOOKED_AT, PARTS, Code, CodeCache, key_of, source_digest, user_cache

KEY = key_of(["program", "config"])


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "new")
    assert cache.get(KEY) is None
    cache.put(KEY, Code(b"\x7fELF code", '["trace"]'))
    assert CodeCache(tmp_path / "new").get(KEY) == Code(b"\x7fELF code", '["trace"]')
    assert cache.get(key_of(["program", "other"])) is None


def test_keys_keep_their_parts_apart() -> None:
    keys = [key_of(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["c", "ab"], ["ab", "c", ""])]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:40] + b"?" + data[41:]]
)
def test_a_damaged_entry_is_removed(tmp_path: Path, damage, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    cache = CodeCache(tmp_path)
    cache.put(KEY, Code(b"code" * 10, "trace"))
    (entry,) = tmp_path.glob("??/*")
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get(KEY) is None
    assert not entry.exists()
    assert "damaged" in caplog.text
    cache.put(KEY, Code(b"again"))
    assert cache.get(KEY) == Code(b"again")


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CodeCache(tmp_path / "file" / "code")
    cache.put(KEY, Code(b"code"))
    assert cache.get(KEY) is None
    cache.prune()


def test_an_entry_that_another_user_could_have_written_is_not_read(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "code")
    cache.put(KEY, Code(b"code"))
    (entry,) = cache.folder.glob("??/*")
    for place in (entry, entry.parent):
        before = place.stat().st_mode
        assert before & 0o077 == 0
        for mode in (0o020, 0o002):
            place.chmod(before | mode)
            assert cache.get(KEY) is None
        place.chmod(before)
        assert cache.get(KEY) == Code(b"code")
    if os.geteuid() == 0:
        for place in (entry, entry.parent):
            os.chown(place, 12345, 12345)
            assert cache.get(KEY) is None
            os.chown(place, os.geteuid(), os.getegid())
    moved = entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(moved)
    assert cache.get(KEY) is None


def test_a_folder_open_to_others_is_closed_when_an_entry_is_kept(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "code")
    cache.folder.mkdir()
    cache.folder.chmod(0o777)
    cache.put(KEY, Code(b"code"))
    assert cache.get(KEY) == Code(b"code")
    assert cache.folder.stat().st_mode & 0o022 == 0


def test_the_least_recently_used_entries_are_removed(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path, most_bytes=6_000)
    keys = [key_of([str(number)]) for number in range(10)]
    for age, key in enumerate(reversed(keys)):
        cache.put(key, Code(bytes(900)))
        os.utime(tmp_path / key[:2] / key, (age, age))
    assert cache.get(keys[9]) is not None  # the oldest of all, now the most recently used
    cache.prune()
    kept = {key for key in keys if cache.get(key) is not None}
    assert kept == {keys[9], *keys[:3]}
    cache.prune()
    assert {key for key in keys if cache.get(key) is not None} == kept


def write_and_read(folder: str, worker: int) -> int:
    """How many of 40 entries, which several processes write at once, were read whole."""
    cache = CodeCache(Path(folder))
    right = 0
    for number in range(40):
        key = key_of([str(number)])
        cache.put(key, Code(bytes([number]) * 5000, f"trace {number}"))
        right += cache.get(key) == Code(bytes([number]) * 5000, f"trace {number}")
    return right


def test_processes_share_a_cache(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        assert list(pool.map(write_and_read, [str(tmp_path)] * 3, range(3))) == [40] * 3
    assert len(list(tmp_path.glob("??/*"))) == 40
    assert not list(tmp_path.glob("??/.*"))


def test_the_digest_of_sources_changes_with_any_of_them(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "below" / "b.py").write_text("y = 1")
    first = source_digest(tmp_path)
    assert source_digest(tmp_path) == first
    (tmp_path / "below" / "b.py").write_text("y = 2")
    second = source_digest(tmp_path)
    (tmp_path / "below" / "b.py").rename(tmp_path / "b.py")
    assert len({first, second, source_digest(tmp_path)}) == 3


def test_the_users_own_cache_is_in_the_cache_folder() -> None:
    assert user_cache().parent.name == "tune-compiler"


def test_of_a_large_cache_with_room_some_folders_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CodeCache(tmp_path, most_bytes=3_000_000)
    for number in range(3 * PARTS):
        cache.put(f"{number % PARTS:02x}{number}", Code(bytes(900)))
    looked_at = []
    scan = os.scandir
    monkeypatch.setattr(code_cache.os, "scandir", lambda folder: looked_at.append(folder) or scan(folder))
    cache.prune()
    assert len(looked_at) == 1 + LOOKED_AT
    assert len(list(tmp_path.glob("??/*"))) == 3 * PARTS
    CodeCache(tmp_path, most_bytes=500_000).prune()
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 500_000
