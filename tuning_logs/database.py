"""Database: connections, transactions, retries and one-line errors for SQLite and PostgreSQL.

SQLite: WAL, full synchronisation, foreign keys on, writers queue by BEGIN IMMEDIATE and a busy timeout. On network
file systems a rollback journal takes WAL's place. A file may come from elsewhere: its schema is not trusted to call
functions, values are limited in size, and text that is not UTF-8 is read with U+FFFD in its place.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Column, Connection, Engine, QueuePool, Row, Select, create_engine, event, make_url, tuple_
from sqlalchemy.exc import ArgumentError, DBAPIError

from schedules.vocabulary.errors import LogError
from tuning_logs.database_errors import PATIENCE_S, error_message, not_a_log_message, passes, read_only_message
from tuning_logs.filesystem import network_file_system

LOG = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 10.0
"""How long SQLite itself waits for another process's lock before it reports an error. Heuristic: transactions take
milliseconds."""

MOST_VALUE_BYTES = 64 * 1024 * 1024
"""Largest text, bytes or row of a file; ours are kilobytes."""

_LEAST_BYTES = 512
"""SQLite's smallest page, so the least that a database can take."""
_POSTGRES_BYTES = (
    "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY['workloads','targets','keys','records']) name"
)

T = TypeVar("T")


class Database:
    """One SQLite file or PostgreSQL database.

    Attributes:
        engine: SQLAlchemy's engine.
        where: the path, or the URL without its password, for messages.
        read_only: whether nothing can be written.
    """

    def __init__(
        self,
        engine: Engine,
        where: str,
        read_only: bool = False,
        journal_mode: str | None = None,
        unlocked: Path | None = None,
    ) -> None:
        """See ``sqlite_database``; ``unlocked`` is the file, if it is read without locks."""
        self.engine = engine
        self.where = where
        self.read_only = read_only
        self._journal_mode = journal_mode
        self._unlocked = unlocked
        self._seen = None if unlocked is None else _state(unlocked)
        self._process = os.getpid()
        self._closed = False

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return self.engine.dialect.name == "sqlite"

    def set_journal_mode(self) -> None:
        """Switch a file to its journal mode; call it once the file is known to be ours, as this writes to it."""
        wanted = self._journal_mode
        if wanted is None or self.outside_transaction("PRAGMA journal_mode", answers=True) == wanted:
            return
        mode = self.outside_transaction(f"PRAGMA journal_mode={wanted}", answers=True)
        if mode != wanted:
            LOG.warning("%s keeps journal mode %s instead of %s: fewer can use it at once", self.where, mode, wanted)

    def check_unchanged(self) -> None:
        """Check that nobody wrote to a file that is read without locks.

        Raises:
            LogError: if somebody did.
        """
        if self._unlocked is not None and _state(self._unlocked) != self._seen:
            raise LogError(f"the tuning log {self.where} was written to while it was read; read it again")

    def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` on one state of a file; on PostgreSQL every statement of it sees what is committed by then.

        That is what a transaction of PostgreSQL's default isolation sees, too: so there is none, as its beginning and
        its end are two more messages to the server.
        """
        return self._tried(lambda: self._transaction(work, writes=False))

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows that ``query`` selects, read in one transaction."""
        return self.read(lambda connection: connection.execute(query).all())

    def walk(self, query: Select[Any], order: Sequence[Column[Any]], size: int) -> Iterator[Row[Any]]:
        """Yield the rows of ``query`` by ``order``, whose columns identify a row; ``size`` of them in a transaction."""
        query = query.order_by(*order).limit(size)
        page = self.rows(query)
        while page:
            yield from page
            last = [getattr(page[-1], column.name) for column in order]
            page = self.rows(query.where(tuple_(*order) > last))

    def write(self, work: Callable[[Connection], T]) -> T:
        """``work`` in a transaction that is durable when this returns; ``work`` may run more than once.

        Raises:
            LogError: nothing of ``work`` was stored.
        """
        if self.read_only:
            raise LogError(read_only_message(self.where))
        return self._tried(lambda: self._transaction(work, writes=True))

    def outside_transaction(self, statement: str, answers: bool = False) -> Any:
        """Run a statement such as VACUUM that no transaction may hold; its first value, if it ``answers``."""

        def work() -> Any:
            with self.engine.connect() as connection:
                if not self.is_sqlite:  # SQLite's connections begin transactions only for read and write
                    connection.execution_options(isolation_level="AUTOCOMMIT")
                result = connection.exec_driver_sql(statement)
                return result.scalar() if answers else None

        return self._tried(work)

    def _transaction(self, work: Callable[[Connection], T], writes: bool) -> T:
        options: dict[str, Any] = {"tuning_log_writes": writes}
        if not writes and not self.is_sqlite:
            options["isolation_level"] = "AUTOCOMMIT"
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            return work(connection)

    def _tried(self, work: Callable[[], T]) -> T:
        """``work()``, again and again while only another process's lock stands in the way."""
        if self._closed:
            raise LogError(f"the tuning log {self.where} was closed; open it again to use it")
        if os.getpid() != self._process:  # a connection must not be shared with the process that forked this one
            self.engine.dispose(close=False)
            self._process = os.getpid()
        deadline_s = time.monotonic() + PATIENCE_S
        pause_s = 0.005
        while True:
            try:
                return work()
            except DBAPIError as error:
                if not passes(error) or time.monotonic() > deadline_s:
                    raise LogError(error_message(error, self.where)) from error
                LOG.debug("%s is busy, trying again: %s", self.where, error.orig)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    def bytes(self) -> int:
        """Space that the log takes on its disk."""
        if not self.is_sqlite:
            return int(self.read(lambda connection: connection.exec_driver_sql(_POSTGRES_BYTES).scalar_one()))
        files = [Path(f"{self.where}{suffix}") for suffix in ("", "-wal", "-shm")]
        return sum(file.stat().st_size for file in files if file.exists())

    def compact(self) -> None:
        """Give the space of deleted rows back."""
        self.outside_transaction("VACUUM" if self.is_sqlite else "VACUUM records")
        if self.is_sqlite:
            self.outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Release files and connections; a second call does nothing."""
        if not self._closed:
            self.engine.dispose(close=os.getpid() == self._process)
            self._closed = True


def _state(path: Path) -> tuple[int, ...]:
    """Return figures that change when a process writes to the SQLite file at ``path``."""
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-journal")]
    statuses = [file.stat() if file.exists() else None for file in files]
    return tuple(
        value for status in statuses if status and status.st_size for value in (status.st_size, status.st_mtime_ns)
    )


def sqlite_database(path: Path, only_read: bool = False) -> Database:
    """The SQLite file ``path``, made with its folders if it is missing.

    Args:
        only_read: open a file that exists to be read. Neither it nor its folder is written to. A file without a
            write-ahead log is then read without locks, which SQLite would keep in a file next to it.

    Raises:
        LogError: if it cannot be opened or is no SQLite file.
    """
    # Links are followed first: what counts is the file system, and the WAL's place, of the file itself.
    path = Path(os.path.realpath(os.path.expanduser(path)))
    _check_file(path)
    read_only = (
        only_read
        or not os.access(path if path.exists() else path.parent, os.W_OK, effective_ids=True)
        or (not os.access(path.parent, os.W_OK, effective_ids=True))
    )
    if read_only and not path.exists():
        why = "" if only_read else " and its folder is read-only"
        raise LogError(f"the tuning log {path} does not exist{why}; give another --log")
    network = network_file_system(path)
    journal_mode = None if read_only else "delete" if network else "wal"
    # A rollback journal's deletion is durable only at EXTRA; WAL needs FULL.
    address = _sqlite_address(path, read_only, only_read)
    engine = _sqlite_engine(address, "EXTRA" if network else "FULL")
    return Database(engine, str(path), read_only, journal_mode, path if address.endswith(_UNLOCKED) else None)


def _check_file(path: Path) -> None:
    """Refuse a ``path`` that cannot be a log before SQLite touches it; make its folders."""
    try:
        if path.is_dir():
            raise LogError(f"the tuning log {path} is a directory; give a file, such as {path / 'tuning.db'}")
        if path.exists() and not path.is_file():
            raise LogError(f"the tuning log {path} is not a regular file; give another --log")
        path.parent.mkdir(parents=True, exist_ok=True)
        # SQLite takes a file of a few bytes for an empty database and would write over it. Only its size is looked at:
        # reading and closing it here would drop the locks of a log that this process has open already (POSIX).
        if path.exists() and 0 < path.stat().st_size < _LEAST_BYTES:
            raise LogError(not_a_log_message(str(path)))
    except OSError as error:
        raise LogError(
            f"the tuning log {path} cannot be opened or made ({error.strerror}); "
            "check the permissions of the file and of its folders, or give another --log"
        ) from error


_UNLOCKED = "&immutable=1"


def _sqlite_address(path: Path, read_only: bool, only_read: bool) -> str:
    address = f"file:{quote(str(path))}"
    if not read_only:
        return address
    waiting = Path(f"{path}-wal")
    # A WAL file needs a writable folder even for reading. Without a WAL the file is complete.
    complete = not waiting.exists() or not waiting.stat().st_size
    immutable = complete and (only_read or not os.access(path.parent, os.W_OK, effective_ids=True))
    return address + "?mode=ro" + (_UNLOCKED if immutable else "")


def _sqlite_engine(address: str, synchronous: str, **pool: int) -> Engine:
    """Connections to the URI ``address``, whose writes are as durable as the pragma ``synchronous`` says."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **pool)

    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute(f"PRAGMA synchronous={synchronous}")

    def begin(connection: Connection) -> None:
        # A deferred transaction that turns into a writer fails at once when another wrote meanwhile.
        writes = connection.get_execution_options().get("tuning_log_writes")
        if writes is not None:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def memory_database() -> Database:
    """An empty SQLite database in memory, whose one connection threads take in turn."""
    return Database(_sqlite_engine("file::memory:", "OFF", pool_size=1, max_overflow=0), "in memory")


_SECRET = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
"""Fields of a URL's query whose value nobody else should read: ``password``, ``sslpassword``, ``passfile`` and such."""


def without_secrets(address: str) -> str:
    """The URL of a database for messages: ``***`` in place of its password, and of secrets in its query."""
    try:
        url: URL = make_url(address)
    except (ArgumentError, ValueError):
        return f"{address.partition('://')[0]}://…"
    query = {name: "***" if _SECRET.search(name) else value for name, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True)


def postgres_database(address: str) -> Database:
    """The PostgreSQL database at the URL ``address``.

    Raises:
        LogError: if the URL is malformed or psycopg is not installed.
    """
    try:
        url: URL = make_url(address).set(drivername="postgresql+psycopg")
        engine = create_engine(url, pool_pre_ping=True)
    except (ArgumentError, ValueError) as error:
        raise LogError(
            "the tuning log's URL is malformed; give postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from error
    except ImportError as error:
        raise LogError(
            f"a PostgreSQL tuning log needs psycopg ({error}); install it with: pip install 'tune-compiler[postgres]'"
        ) from error
    return Database(engine, without_secrets(url.set(drivername="postgresql").render_as_string(hide_password=False)))
