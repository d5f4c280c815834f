"""Names that a C library may have."""

from __future__ import annotations

import ctypes
import re
from ctypes.util import find_library
from pathlib import Path

OWN = ("tune",)
"""Prefix of the names of the core's functions and constants."""

FUNCTIONS = ("open", "close", "run", "cancel", "input", "output", "inputs", "outputs", "sets", "error", "options")
"""Suffix of the names of the library's functions and types."""

KEYWORDS = (
    *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern"),
    *("float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed"),
    *("sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while"),
)
"""Words of C."""

MOST_NAME = 64
"""Characters of a name: paths and symbols that it is part of stay short."""


def default_name(artifact: Path) -> str:
    """The artifact's name as C has names, with a prefix where it could not be one."""
    name = re.sub(r"\W", "_", artifact.resolve().name.removesuffix(".tuned"), flags=re.ASCII)
    return f"model_{name}" if unusable(name) else name


def unusable(name: str) -> str:
    """Why ``name`` cannot be the name of a library and begin those of its functions; empty if it can."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        return "it cannot be the name of C functions"
    if len(name) > MOST_NAME:
        return f"it has more than {MOST_NAME} characters"
    if name in KEYWORDS:
        return "it is a word of the language C"
    if name.lower() in OWN or name.lower().startswith(tuple(f"{own}_" for own in OWN)):
        return "functions and constants of the library's core begin with it"
    system = ctypes.CDLL(None)
    taken = next((function for end in FUNCTIONS if hasattr(system, function := f"{name}_{end}")), None)
    if taken is not None:
        return f"the system has a function {taken}"
    return f"the system has a library lib{name}" if find_library(name) else ""
