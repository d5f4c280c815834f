"""The schema of an opened log: found, checked, made where there is none, and upgraded where it is older."""

from __future__ import annotations

from sqlalchemy import Connection, func, inspect, select, text

from schedules.vocabulary.errors import LogError
from tuning_logs.database import Database
from tuning_logs.schema import HEAD, METADATA, UPGRADES, VERSION

_UPGRADE_LOCK = 0x74756E65
"""PostgreSQL's advisory lock that lets one process at a time create or upgrade the schema."""


def prepare_schema(database: Database) -> None:
    """Make or upgrade the tables of ``database``, unless it has them.

    Raises:
        LogError: if it is newer than ours, or no tuning log.
    """
    outdated = database.read(lambda connection: _found_schema(connection, database.where)) != int(HEAD)
    database.set_journal_mode()
    if outdated:
        database.write(lambda connection: _upgrade(connection, database.where))


def _found_schema(connection: Connection, where: str) -> int:
    """The number of the log's schema, 0 for an empty database.

    Raises:
        LogError: if it is newer than ours, or somebody else's.
    """
    names = set(inspect(connection).get_table_names())
    if connection.dialect.name == "sqlite":
        _check_plain(connection, where)
    if VERSION.name not in names:
        ours = names & set(METADATA.tables)
        if ours or (names and connection.dialect.name == "sqlite"):
            raise LogError(
                f"{where} is a database but not a tuning log (it has the tables {', '.join(sorted(names)[:5])}); "
                "give another --log"
            )
        return 0
    schema = str(connection.execute(select(func.max(VERSION.c.version_num))).scalar())
    if schema.isdigit() and int(schema) <= int(HEAD):
        return int(schema)
    raise LogError(
        f"the tuning log {where} has schema {schema}, this version knows up to {HEAD}; "
        "upgrade with 'pip install --upgrade tune-compiler', or give another --log"
    )


_CODE_IN_SCHEMA = text("SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'")
"""Query for code that runs when a file is read or written, and is in no log of ours."""


def _check_plain(connection: Connection, where: str) -> None:
    """Refuse a file whose schema holds more than tables and indices.

    Raises:
        LogError: naming what it holds.
    """
    odd = connection.execute(_CODE_IN_SCHEMA).scalars().first()
    if odd is not None:
        raise LogError(
            f"{where} is not a plain tuning log (it holds {ascii(odd)[:60]}, a view, a trigger or a virtual table); "
            "give another --log"
        )


def _upgrade(connection: Connection, where: str) -> None:
    """Make the tables of an empty database, or bring an older log's to the newest schema."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
    schema = _found_schema(connection, where)  # read again: another process may have come first
    if not schema:
        VERSION.create(connection)
        METADATA.create_all(connection)
        connection.execute(VERSION.insert(), {"version_num": HEAD})
        return
    for step in UPGRADES[schema - 1 :]:
        step(connection)
    connection.execute(VERSION.update(), {"version_num": HEAD})
