"""Bring a database to the newest schema. Imported only when that is needed: alembic costs a quarter of a second."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Connection


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the numbered migrations up to ``revision`` inside the caller's transaction."""
    config = AlembicConfig()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
