"""A PostgreSQL server of its own for the tests, from the machine's packages, reachable by a Unix socket only."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

_WAIT_UNTIL_ALONE = """DO $$ BEGIN
    WHILE EXISTS (SELECT FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend')
    LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP;
END $$"""
DEBIAN = Path("/usr/lib/postgresql")

GONE_S = 60.0
"""Seconds after which a killed server's process is no longer waited for."""


def program_folder() -> Path | None:
    """The folder with ``initdb`` and ``pg_ctl``, newest first: Debian keeps them out of PATH."""
    folders = sorted(DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    if program := shutil.which("pg_ctl"):
        folders.append(Path(program).parent)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


def missing() -> str:
    """Why no server can be used here, or nothing."""
    if program_folder() is None:
        return "no PostgreSQL server programs (apt-get install postgresql)"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'tune-compiler[postgres]')"
    return ""


class PostgresServer:
    """Started at birth; ``stop`` ends it and removes its files. Never as root, which PostgreSQL refuses.

    Args:
        durable: whether it waits for the disk, as a server does by default; tests have no need of that.
    """

    def __init__(self, durable: bool = False) -> None:
        self._fsync = "on" if durable else "off"
        programs = program_folder()
        assert programs is not None
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has at most 107 bytes
        self._numbers = itertools.count(1)
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        as_owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*as_owner, str(self._programs / program), *arguments]
        # The server keeps its parent's output open, so that goes to a file, not a pipe.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, cwd="/", stdout=output, stderr=output, stdin=subprocess.DEVNULL)
            output.seek(0)
            assert done.returncode == 0, output.read().decode()

    def start(self) -> None:
        """Start it and wait until it answers; after it was killed, once the system has removed its process."""
        told = self._folder / "data" / "postmaster.pid"
        deadline = time.monotonic() + GONE_S
        while told.exists() and psutil.pid_exists(int(told.read_text().split()[0])) and time.monotonic() < deadline:
            time.sleep(0.05)
        options = f"-k {self._folder} -c listen_addresses='' -c fsync={self._fsync}"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", str(self._folder / "log"), "-w", "start")

    @property
    def process(self) -> psutil.Process:
        """The server's first process, whose end all others notice."""
        return psutil.Process(int((self._folder / "data" / "postmaster.pid").read_text().split()[0]))

    def halt(self) -> None:
        """Stop it at once, as a crash would."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def stop(self) -> None:
        """Stop it and remove its files."""
        self.halt()
        shutil.rmtree(self._folder)

    def address(self, name: str) -> str:
        """URL of database ``name``."""
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def new_database(self) -> str:
        """URL of a new, empty database."""
        name = f"test{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return self.address(name)

    def sql(self, name: str, statement: str) -> None:
        """Run one statement in database ``name``."""
        self._run(
            "psql",
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self._folder),
            "-U",
            "postgres",
            "-d",
            name,
            "-c",
            statement,
        )

    def wait_until_alone(self, name: str) -> None:
        """Wait until nobody is connected to database ``name``: a killed client's last statement may still run."""
        self.sql(name, _WAIT_UNTIL_ALONE)
