"""Contributions: what only some users need, in ``autotune/contrib/``, each a distribution that an extra installs.

The core never imports one. It asks for it by the name of an entry point, where a model or a command wants it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from schedules.vocabulary.errors import AutotuneError, InstallError

GROUP = "tune.contributions"
"""The group of their entry points."""

EXTRAS: Mapping[str, str] = {
    "operators": "classical",
    "strings": "strings",
    "string_operators": "strings",
    "metaschedule": "exchange",
    "pack": "exchange",
    "ray": "cluster",
    "replay": "replay",
    "torch": "torch",
}
"""Entry point → the extra that installs it."""

COMMANDS = ("pack", "replay")
"""Entry points that are commands of ``tune``."""

OPERATORS: Mapping[tuple[str, str], str] = {("", "TfIdfVectorizer"): "operators", ("ai.onnx.ml", ""): "operators"}
"""Domain and kind of an operator, or domain alone → the entry point that fills the importer's registry with it."""

FRAMEWORKS: Mapping[str, str] = {"torch": "torch"}
"""Package whose class a model is an object of → the entry point that writes such a model as an ONNX file.

It is called with the model, example inputs and the run's options, and returns the path.
"""

PEERS: Mapping[str, str] = {"torch.compile": "torch"}
"""Engine to compare with → an entry point of the contribution that has it."""


@cache
def declared(group: str) -> Mapping[str, str]:
    """Return the entry points of ``group`` by name, as the contributions that are there declare them.

    Each ships its ``pyproject.toml``.
    """
    import tomllib  # few sessions need it

    entry_points: dict[str, str] = {}
    for project in sorted(Path(__file__).parent.glob("contrib/*/pyproject.toml")):
        entry_points |= tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"].get(group, {})
    return entry_points


@cache
def contributed(name: str) -> Any:
    """Return what the entry point ``name`` holds; None if its contribution is not installed."""
    place = declared(GROUP).get(name)
    return None if place is None else pkgutil.resolve_name(place)


def contribution(name: str, what: str, error: type[AutotuneError] = InstallError) -> Any:
    """Return what the entry point ``name`` holds.

    Args:
        what: the thing that wants it, as the message begins.
        error: the kind of error if the contribution is not installed.

    Raises:
        AutotuneError: ``error``, with the extra to install.
    """
    entry = contributed(name)
    if entry is None:
        raise error(f"{what} needs an extra that is not installed; run: {install(name)}")
    return entry


def framework_of(model: object) -> str | None:
    """Return the entry point that writes ``model`` as an ONNX file; None if its class is of no known package."""
    packages = [cls.__module__.partition(".")[0] for cls in type(model).__mro__]
    return next((FRAMEWORKS[package] for package in packages if package in FRAMEWORKS), None)


def install(name: str) -> str:
    """Return the command that installs the contribution of the entry point ``name``."""
    return f"pip install 'tune-compiler[{EXTRAS[name]}]'"


def operator_advice(domain: str, kind: str, advice: str) -> str:
    """Return the command that installs an operator that is not installed; ``advice`` for any other."""
    name = OPERATORS.get((domain, kind)) or OPERATORS.get((domain, ""))
    return advice if name is None or contributed(name) is not None else f"run: {install(name)}"
