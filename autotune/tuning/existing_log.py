"""The tuning log of a command: one that must exist, one that may, or one that is made."""

from __future__ import annotations

import logging
from pathlib import Path

from autotune.options import default_log
from schedules.vocabulary.errors import LogError, MissingRecordError
from tuning_logs.sql_store import TuningLog, memory_log, open_log

logger = logging.getLogger(__name__)


def made_log(address: str | Path | None) -> TuningLog:
    """The log at ``address`` (None: the user's own); it is made if there is none.

    Raises:
        LogError: if it cannot be opened.
    """
    return open_log(default_log() if address is None else address)


def existing_log(address: str | Path | None, only_read: bool = False) -> TuningLog:
    """The log at ``address`` (None: the user's own).

    Args:
        only_read: leave it as it is, and its folder, too.

    Raises:
        LogError: if there is none, or it cannot be opened.
    """
    where = default_log() if address is None else address
    if _is_missing(where):
        raise LogError(f"there is no tuning log at {where}; 'tune run MODEL' makes one, or give another --log")
    return open_log(where, only_read)


def known_log(address: str | Path | None) -> TuningLog:
    """The log at ``address`` (None: the user's own), to look records up in; an empty one where there is none yet.

    Raises:
        LogError: if it cannot be opened.
    """
    where = default_log() if address is None else address
    if not _is_missing(where):
        return open_log(where)
    if address is not None:
        logger.warning("there is no tuning log at %s, so no records are known; 'tune run --log' makes it", where)
    return memory_log()


def check_frozen(address: str | Path | None) -> None:
    """Refuse to build from a log that was named and does not exist.

    Raises:
        MissingRecordError: if there is none at ``address``.
    """
    if address is not None and _is_missing(address):
        raise MissingRecordError(
            f"there is no tuning log at {address}; tune first or merge a log into it, or give another --log"
        )


def _is_missing(where: str | Path) -> bool:
    return "://" not in str(where) and not Path(where).exists()
