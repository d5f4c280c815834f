"""The panels of ``--help`` on the page of the command line, whose generator lists options in one row."""

from __future__ import annotations

import re

import typer

from autotune.cli.main import app


def with_panels(page: str) -> str:
    """Return typer's ``page`` with the options of every command under the panels of its help."""
    command = typer.main.get_command(app)
    sections = re.split(r"^(?=##+ `)", page, flags=re.MULTILINE)
    return "".join(_section(section, command) for section in sections)


def _section(section: str, command: object) -> str:
    heading = re.match(r"##+ `tune ([^`]*)`", section)
    for name in heading[1].split() if heading else ():
        command = command.commands[name]  # type: ignore[attr-defined]
    panels = {
        flag: getattr(option, "rich_help_panel", None)
        for option in command.params  # type: ignore[attr-defined]
        for flag in option.opts
    }
    return re.sub(r"(?<=\*\*Options\*\*:\n\n)(?:\* .*\n)+", lambda rows: _grouped(rows[0], panels), section)


def _grouped(rows: str, panels: dict[str, str | None]) -> str:
    groups: dict[str | None, list[str]] = {None: []}
    for row in rows.splitlines():
        flag = re.search(r"--[\w-]+", row)
        groups.setdefault(panels.get(flag[0]) if flag else None, []).append(row)
    parts = ["\n".join(([] if panel is None else [f"**{panel}**:", ""]) + lines) for panel, lines in groups.items()]
    return "\n\n".join(parts) + "\n"
