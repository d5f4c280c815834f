"""What can be wrong with a log's place is said in one line, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedules.vocabulary.errors import LogError
from tests.tuning_logs_tests.samples import KEY, any_program, timed
from tuning_logs import database as database_module
from tuning_logs.database import without_secrets
from tuning_logs.maintenance import verify
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog, open_log

NOBODY = 65534


def filled(path: Path) -> Path:
    """A log with one record at ``path``."""
    store = open_log(path)
    store.append([timed(1, 1.0)])
    store.close()
    return path


def refusal(path: Path | str) -> str:
    """The one line with which opening ``path`` fails."""
    with pytest.raises(LogError) as caught:
        open_log(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user may enter; pytest's own belong to one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_new_log_is_made_with_its_folders(tmp_path: Path) -> None:
    filled(tmp_path / "a" / "b" / "tuning.db")
    assert (tmp_path / "a" / "b" / "tuning.db").is_file()


@pytest.mark.parametrize("form", [str, Path, lambda path: f"sqlite:///{path}"])
def test_every_way_to_name_a_file(tmp_path: Path, form: type) -> None:
    path = filled(tmp_path / "a %41?#b.db")
    store = open_log(form(path))
    assert store.best(KEY) == timed(1, 1.0)
    assert store.database.where == str(path)
    store.close()


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "tuning.db").touch()
    filled(tmp_path / "tuning.db")


def test_writing_is_safe_and_shared(tmp_path: Path) -> None:
    store = open_log(tmp_path / "tuning.db")
    with store.database.engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}
    store.close()


def test_no_wal_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "tuning.db")
    monkeypatch.setattr(database_module, "network_file_system", lambda path: "nfs4")
    store = open_log(path)
    with store.database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "delete"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 3
    store.append([timed(2, 0.5)])
    assert store.best(KEY) == timed(2, 0.5)
    store.close()


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near.db").symlink_to(tmp_path / "far" / "tuning.db")
    asked: list[Path] = []
    monkeypatch.setattr(database_module, "network_file_system", asked.append)
    filled(tmp_path / "near.db")
    assert asked == [tmp_path / "far" / "tuning.db"]
    assert asked[0].is_file()


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory; give a file" in refusal(tmp_path)


def test_a_device() -> None:
    assert "not a regular file" in refusal("/dev/null")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be opened or made" in refusal(tmp_path / "file" / "tuning.db")


@pytest.mark.parametrize("address", ["", "a\0b", "mysql://host/db", "http://host"])
def test_an_address_that_is_none(address: str) -> None:
    assert "give a" in refusal(address)


@pytest.mark.parametrize("content", [b"hello, I am a model" * 100, b"\x00" * 5000, b"x", b"x" * 511])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert "not a tuning log but some other file" in refusal(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")
    before = path.read_bytes()
    assert "it has the tables studies" in refusal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("revision", "words"), [("9999", "knows up to"), ("abc", "knows up to"), (None, "None")])
def test_a_schema_of_a_newer_version(tmp_path: Path, revision: str | None, words: str) -> None:
    path = filled(tmp_path / "tuning.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM tuning_log_version")
        if revision:
            connection.execute("INSERT INTO tuning_log_version VALUES (?)", (revision,))
        connection.commit()
    assert words in refusal(path)


def test_a_truncated_log(tmp_path: Path) -> None:
    path = filled(tmp_path / "tuning.db")
    path.write_bytes(path.read_bytes()[:6000])
    assert "damaged" in refusal(path)


def check_reads_but_does_not_write(path: Path) -> None:
    with as_nobody():
        store = open_log(path)
        try:
            assert store.best(KEY) == timed(1, 1.0)
            assert verify(store, any_program).ok
            with pytest.raises(LogError, match="read-only and nothing was stored; make it writable"):
                store.append([timed(2, 1.0)])
            assert list(store.records()) == [timed(1, 1.0)]
        finally:
            store.close()


def test_a_read_only_file_is_read(public_folder: Path) -> None:
    path = filled(public_folder / "tuning.db")
    path.chmod(0o444)
    check_reads_but_does_not_write(path)


def test_a_log_in_a_read_only_folder_is_read(public_folder: Path) -> None:
    path = filled(public_folder / "tuning.db")
    path.chmod(0o444)
    public_folder.chmod(0o555)
    check_reads_but_does_not_write(path)


def test_a_missing_log_in_a_read_only_folder(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with as_nobody():
        assert "folder is read-only" in refusal(public_folder / "tuning.db")
        assert "cannot be opened or made" in refusal(public_folder / "deeper" / "tuning.db")


def test_a_file_nobody_may_read(public_folder: Path) -> None:
    path = filled(public_folder / "tuning.db")
    path.chmod(0)
    with as_nobody():
        assert "check the permissions" in refusal(path)


def check_full_disk(store: TuningLog) -> None:
    stored: list[TuningRecord] = []
    message = ""
    while not message and len(stored) < 10_000:
        batch = [timed(len(stored) + index, 1.0) for index in range(100)]
        try:
            store.append(batch)
            stored += batch
        except LogError as error:
            message = str(error)
    assert "disk" in message
    assert "nothing of this batch was stored" in message
    assert "\n" not in message
    assert list(store.records()) == stored
    assert store.best(KEY) == stored[0]
    assert verify(store, any_program).ok


def test_a_full_disk(tmp_path: Path) -> None:
    store = open_log(tmp_path / "tuning.db")
    with store.database.engine.connect() as connection:  # the pool hands out this same connection again
        connection.exec_driver_sql("PRAGMA max_page_count=60")
    check_full_disk(store)
    store.close()


def test_a_really_full_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", tmp_path], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"mounting a small file system is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        store = open_log(tmp_path / "tuning.db")
        check_full_disk(store)
        store.close()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    store = open_log(tmp_path / "tuning.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    try:
        check_full_disk(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.append([timed(99_999, 0.5)])
    assert store.best(KEY) == timed(99_999, 0.5)
    store.close()


def test_a_stuck_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(database_module, "PATIENCE_S", 0.05)
    path = filled(tmp_path / "tuning.db")
    store = open_log(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as stuck:
        stuck.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogError, match="kept locked by another process"):
            store.append([timed(2, 1.0)])
        assert store.best(KEY) == timed(1, 1.0)  # readers do not wait for writers
        stuck.execute("ROLLBACK")
    store.append([timed(2, 0.5)])
    assert store.best(KEY) == timed(2, 0.5)
    store.close()


def test_a_short_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.001)
    path = filled(tmp_path / "tuning.db")
    store = open_log(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(database_module.time, "sleep", lambda _: other.in_transaction and other.execute("COMMIT"))
        store.append([timed(2, 0.5)])
    assert store.best(KEY) == timed(2, 0.5)
    store.close()


def test_a_fork_uses_its_own_connection(tmp_path: Path) -> None:
    store = open_log(tmp_path / "tuning.db")
    store.append([timed(1, 1.0)])
    child = os.fork()
    if child == 0:
        try:
            store.append([timed(2, 0.5)])
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    store.append([timed(3, 0.7)])
    assert len(list(store.records())) == 3
    assert verify(store, any_program).ok
    store.close()


@pytest.mark.parametrize("address", ["postgresql://user:secret@host/db", "postgres://user:secret@host/db"])
def test_postgres_without_its_driver(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = refusal(address)
    assert "pip install 'tune-compiler[postgres]'" in message
    assert "secret" not in message


def test_a_malformed_postgres_url() -> None:
    assert "give postgresql://USER" in refusal("postgresql://user:secret@host:port:7/db")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:SECRET@host/db",
        "postgresql://user@host/db?password=SECRET",
        "postgresql://host/db?sslmode=require&sslpassword=SECRET&PassFile=SECRET",
        "postgresql://user:SECRET@host:port:7/db",
    ],
)
def test_no_password_is_shown(address: str) -> None:
    shown = without_secrets(address)
    assert "SECRET" not in shown
    assert shown.startswith("postgresql://")
