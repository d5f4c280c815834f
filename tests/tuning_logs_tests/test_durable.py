"""A file is written whole or not at all, under a name that nobody can prepare, and synchronised before its rename."""

import os
import stat
import threading

import pytest

from tuning_logs import durable
from tuning_logs.durable import UNFINISHED, replacing, sync_tree, write_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"old")
    with replacing(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_permissions_are_those_of_any_new_file_or_narrower(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", b"")
        write_file(tmp_path / "own", b"", mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, ValueError])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "file"
    write_file(path, b"old")

    def fail():
        with replacing(path) as stream:
            stream.write(b"half")
            raise error("dear me")

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    path.symlink_to(victim)
    write_file(path, b"new")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()


def test_names_cannot_be_prepared(tmp_path, monkeypatch):
    """Even if somebody guesses the name: what it links to is not opened."""
    monkeypatch.setattr(durable.os, "urandom", lambda size: bytes(size))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".file.{bytes(8).hex()}{UNFINISHED}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "file", b"new")
    assert victim.read_text() == "precious"


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write_file(path, b"new")
    reader.join()
    assert got == [b"new"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    write_file(tmp_path.joinpath("/dev/null"), b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_bytes_are_synchronised_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "bytes")
        fsync(handle)

    def noted_replace(*paths):
        calls.append("name")
        replace(*paths)

    monkeypatch.setattr(durable.os, "fsync", noted_fsync)
    monkeypatch.setattr(durable.os, "replace", noted_replace)
    write_file(tmp_path / "file", b"new")
    assert calls == ["bytes", "name", "folder"]
    calls.clear()
    write_file(tmp_path / "file", b"new", durable=False)
    assert calls == ["name"]
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "a" / "link").symlink_to("/nowhere")
    calls.clear()
    sync_tree(tmp_path / "a")
    assert calls == ["bytes", "folder", "folder"]


def test_a_long_name_is_no_obstacle(tmp_path):
    path = tmp_path / ("x" * 255)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
