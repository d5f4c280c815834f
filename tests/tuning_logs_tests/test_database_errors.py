"""What a driver's error means: whether to try again, and what a user reads."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError

from tuning_logs.database_errors import error_message, passes


def raised(code: str) -> DBAPIError:
    original = sqlite3.OperationalError("the driver's words")
    original.sqlite_errorname = code
    return DBAPIError("SELECT 1", {}, original)


@pytest.mark.parametrize(
    ("code", "again"), [("SQLITE_BUSY", True), ("SQLITE_LOCKED_SHAREDCACHE", True), ("SQLITE_FULL", False), ("", False)]
)
def test_only_locks_pass_by_themselves(code: str, again: bool) -> None:
    assert passes(raised(code)) == again


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("SQLITE_FULL", "the disk is full"),
        ("SQLITE_READONLY_DBMOVED", "is read-only"),
        ("SQLITE_NOTADB", "some other file"),
        ("SQLITE_CORRUPT", "is damaged"),
        ("SQLITE_CANTOPEN", "cannot be opened"),
        ("SQLITE_BUSY", "kept locked"),
        ("SQLITE_IOERR_WRITE", "could not be read or written"),
        ("", "failed: the driver's words"),
    ],
)
def test_every_message_names_the_log_in_one_line(code: str, words: str) -> None:
    message = error_message(raised(code), "a.db")
    assert words in message
    assert "the tuning log a.db" in message
    assert "\n" not in message
