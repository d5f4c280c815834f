"""The tables of a SQL tuning log. A change of them needs a step in ``UPGRADES``, which brings older logs along.

    workloads   one task's program
    targets     one machine's description
    keys        one RecordKey; a record names it by number, which keeps the indices small
    records     one TuningRecord, never updated

A workload's program and a target's description may be NULL: records may arrive before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

UPGRADES: tuple[Callable[[Connection], object], ...] = ()
"""The first leads from schema 0001 to 0002, and so on. A released step never changes again."""

HEAD = f"{len(UPGRADES) + 1:04}"
"""Schema that the tables below describe."""

_ESCAPED = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPE = re.compile("\x1a([0-9a-f]{4})")


class AnyText(TypeDecorator[str]):
    """Text that may hold what databases refuse: NUL and unpaired surrogates, as compilers' raw output has them.

    Those characters become U+001A and four hex digits, and back on reading.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """As stored."""
        return None if value is None else _ESCAPED.sub(lambda match: f"\x1a{ord(match[0]):04x}", value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """As given. SQLite keeps a value of any type in any column: one that is no text becomes its description."""
        if value is None:
            return None
        text = value if isinstance(value, str) else ascii(value)[:100]
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


class AnyBytes(TypeDecorator[bytes]):
    """Bytes. A value of another type, which SQLite keeps as well, is read as no bytes at all.

    SQLAlchemy would make ``bytes`` of it: of a number that many zeros.
    """

    impl = LargeBinary
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], bytes | None]:
        """As stored."""
        return lambda value: value if value is None or isinstance(value, bytes) else b""


METADATA = MetaData()

_ROW_ID = BigInteger().with_variant(Integer(), "sqlite")  # only INTEGER is SQLite's own row number

VERSION = Table(
    "tuning_log_version",  # one row: the log's schema, such as HEAD
    MetaData(),  # apart from METADATA: this table distinguishes a log from other databases
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="tuning_log_version_pkc"),
)

WORKLOADS = Table(
    "workloads",
    METADATA,
    Column("task", AnyText(), primary_key=True),
    Column("program", AnyBytes()),  # zlib of UTF-8 JSON
    Column("sha256", Text()),  # of the uncompressed program
)

TARGETS = Table(
    "targets",
    METADATA,
    Column("fingerprint", AnyText(), primary_key=True),
    Column("description", AnyText()),  # Target.to_json
)

KEYS = Table(
    "keys",
    METADATA,
    Column("id", _ROW_ID, primary_key=True),
    Column("task", AnyText(), ForeignKey("workloads.task"), nullable=False),
    Column("target", AnyText(), ForeignKey("targets.fingerprint"), nullable=False),
    Column("space", AnyText(), nullable=False),
    Column("tvm", AnyText(), nullable=False),
    UniqueConstraint("task", "target", "space", "tvm", name="one_key"),
    Index("keys_of_space", "space", "target", "tvm"),
)

RECORDS = Table(
    "records",
    METADATA,
    Column("id", _ROW_ID, primary_key=True),
    Column("digest", AnyBytes(), nullable=False),  # codec.digest: the same content is the same record
    Column("key_id", _ROW_ID, ForeignKey("keys.id"), nullable=False),
    Column("config", AnyText(), nullable=False),  # Config.to_json
    Column("config_hash", BigInteger(), nullable=False),  # keeps the index below small
    Column("latency_s", Double()),  # the median; NULL where the measurement failed
    Column("latencies_s", AnyBytes()),  # every run, little-endian float64
    Column("error", AnyText()),
    Column("message", AnyText(), nullable=False),
    Column("compile_s", Double(), nullable=False),
    Column("run_s", Double(), nullable=False),
    Column("code_hash", AnyText(), nullable=False),
    Column("trace", AnyBytes(), nullable=False),  # zlib of UTF-8 JSON; empty where there is none
    Column("measured_at", Double(), nullable=False),  # TuningRecord.when
    Column("host", AnyText(), nullable=False),
    Column("seed", Text(), nullable=False),  # text, as seeds may have more than 64 bits
    Column("provenance", AnyText(), nullable=False),  # JSON object
    Index("one_record", "digest", unique=True),
    Index("records_by_age", "key_id", "measured_at", "id"),
    Index("all_by_age", "measured_at", "id"),
)

_TIMED = text("latency_s IS NOT NULL")
_FAILED = text("error IS NOT NULL")

# best() walks the first and asks the second whether the config was measured again: see sql_store.
Index(
    "records_by_speed",
    RECORDS.c.key_id, RECORDS.c.latency_s, RECORDS.c.measured_at, RECORDS.c.id,
    sqlite_where=_TIMED, postgresql_where=_TIMED,
)  # fmt: skip
Index(
    "records_by_config",
    RECORDS.c.key_id, RECORDS.c.config_hash, RECORDS.c.measured_at, RECORDS.c.id,
    sqlite_where=_TIMED, postgresql_where=_TIMED,
)  # fmt: skip

# Failures are counted by kind without a look at the rows; records_by_speed does the same for the successes.
Index("records_by_error", RECORDS.c.key_id, RECORDS.c.error, sqlite_where=_FAILED, postgresql_where=_FAILED)
