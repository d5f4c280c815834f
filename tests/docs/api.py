"""The Python reference, from the docstrings of what ``autotune`` exports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import autotune

HEAD = """# Python

Everything that `import autotune` offers, from the docstrings; made by `make docs`. Errors are all
`autotune.AutotuneError`: one line that says what, with which values, and what to do.
"""

GROUPS = {
    "Tuning": ("tune", "build", "tune_function", "Options", "Result", "TunedFunction"),
    "Running": ("load", "InferenceSession", "Adapt"),
}


def page() -> str:
    """docs/api.md."""
    parts = [HEAD]
    errors = sorted(name for name in autotune.__all__ if name.endswith("Error"))
    grouped = {name for names in GROUPS.values() for name in names}
    others = [name for name in autotune.__all__ if name not in grouped and name not in errors]
    for title, names in {**GROUPS, **({"More": tuple(others)} if others else {})}.items():
        parts.append(f"## {title}\n")
        parts += [entry(name, getattr(autotune, name)) for name in names]
    parts.append("## Errors\n\n| error | when |\n|---|---|")
    parts += [f"| `{name}` | {first_line(getattr(autotune, name))} |" for name in errors]
    return "\n".join(parts) + "\n"


def entry(name: str, thing: Any) -> str:
    """One class or function."""
    lines = [f"### `autotune.{name}`\n", f"```python\n{signature(name, thing)}\n```\n", body(thing)]
    if inspect.isclass(thing):
        for member, value in sorted(_members(thing).items()):
            if member.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            func = value.fget if isinstance(value, property) else value
            head = member if isinstance(value, property) else signature(member, value)
            lines.append(f"#### `{name}.{member}`\n\n```python\n{head}\n```\n\n{body(func)}")
    return "\n".join(lines)


def _members(thing: type) -> dict[str, Any]:
    """Return the attributes of a class that are this project's, its bases' included."""
    ours = [base for base in reversed(thing.__mro__) if base.__module__.startswith("autotune.")]
    return {name: value for base in ours for name, value in vars(base).items()}


def signature(name: str, thing: Any) -> str:
    """``name(arguments)``, one per line where they are many."""
    inspected = inspect.signature(thing)
    words = []
    for parameter in inspected.parameters.values():
        if parameter.name == "self" or parameter.name.startswith("_"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        typed = "" if parameter.annotation is parameter.empty else f": {annotation(parameter.annotation)}"
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        words.append(f"{stars}{parameter.name}{typed}{default(parameter)}")
    text = f"{name}({', '.join(words)})"
    if len(text) > 100:
        text = f"{name}(\n    " + ",\n    ".join(words) + ",\n)"
    returned = inspected.return_annotation
    if inspect.isclass(thing) or returned in (inspected.empty, None, "None"):
        return text
    return f"{text} -> {annotation(returned)}"


def annotation(written: Any) -> str:
    """A type as it is written in the sources."""
    return written.strip("'\"") if isinstance(written, str) else getattr(written, "__name__", str(written))


def default(parameter: inspect.Parameter) -> str:
    """`` = value``, or nothing; the same on every machine."""
    value = parameter.default
    if value is parameter.empty:
        return ""
    if "factory" in repr(value):
        return " = ..."
    if callable(value):
        return f" = {value.__name__}"
    return f' = "{value}"' if isinstance(value, str) else f" = {value!r}"


def first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").splitlines()[0]


def body(thing: Callable[..., Any]) -> str:
    """A docstring as Markdown: its sections become lists."""
    text = (inspect.getdoc(thing) or "").replace("``", "`")
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line in ("Args:", "Attributes:", "Raises:", "Returns:"):
            lines += [f"**{line[:-1]}**", ""]
            inside = True
        elif inside and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}" if colon else f"- {line.strip()}")
        elif inside and line.startswith("     "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines).strip() + "\n"
