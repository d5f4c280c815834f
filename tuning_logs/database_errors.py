"""The meaning of a driver's error: whether it passes by itself, and the one line that a user reads."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import DBAPIError

PATIENCE_S = 120.0
"""How long a transaction is tried again. Ours hold the lock for milliseconds; longer means something is stuck."""


def _code(error: DBAPIError) -> str:
    """SQLite's error name or PostgreSQL's SQLSTATE; empty where there is none."""
    original: Any = error.orig
    return str(getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or "")


def passes(error: DBAPIError) -> bool:
    """Return whether trying again may help: another writer's lock, a lost race, or a dropped connection."""
    code = _code(error)
    lost_race = code in ("40001", "40P01", "55P03")  # serialisation failure, deadlock, lock not available
    return code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or lost_race or error.connection_invalidated


def read_only_message(where: str) -> str:
    """Return the message when something should be written to a read-only log."""
    return f"the tuning log {where} is read-only and nothing was stored; make it writable, or give another --log"


def not_a_log_message(where: str) -> str:
    """Return the message about a file that SQLite did not write."""
    return f"the tuning log {where} is not a tuning log but some other file; give another --log"


def error_message(error: DBAPIError, where: str) -> str:
    """One line for ``error``: what, with which log, what to do."""
    code = _code(error)
    reason = next(iter(str(error.orig).strip().splitlines()), type(error.orig).__name__)
    log = f"the tuning log {where}"
    if code.startswith(("SQLITE_FULL", "53100")):
        what = "could not be written because the disk is full, and nothing of this batch was stored"
        return f"{log} {what}; free some space, or give another --log"
    if code.startswith(("SQLITE_READONLY", "25006")):
        return read_only_message(where)
    if code.startswith("SQLITE_NOTADB"):
        return not_a_log_message(where)
    if code.startswith("SQLITE_CORRUPT"):
        return f"{log} is damaged ({reason}); put a copy in its place, or save its rows with 'sqlite3 FILE .recover'"
    if code.startswith("SQLITE_CANTOPEN"):
        return f"{log} cannot be opened ({reason}); check the permissions of the file and of its folder"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return (
            f"{log} was kept locked by another process for {PATIENCE_S:.0f} s; end that process, or give another --log"
        )
    if code.startswith("SQLITE_IOERR"):
        what = f"could not be read or written ({reason}), and nothing of this batch was stored"
        return f"{log} {what}; check the disk, its space and its quota, or give another --log"
    return f"{log} failed: {reason}; check the address, the server and the log ('tune log verify')"
