"""Text from models, logs and artifacts as it is shown: names may hold anything, also what moves a terminal's cursor."""

from __future__ import annotations

import time


def escaped(text: str) -> str:
    r"""``text`` in one line, with an escape such as ``\x1b`` in place of every character that is not printable.

    These are control characters, line ends, marks that change the direction of writing, and halves of surrogate pairs.
    Tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def escaped_lines(text: str) -> str:
    """Work like ``escaped``, of each line of a text that may have several."""
    return "\n".join(map(escaped, text.split("\n")))


def day(when: float) -> str:
    """Local date and time to the minute of seconds since the epoch; ``?`` of a time in no known year."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
    except (ValueError, OverflowError, OSError, TypeError):
        return "?"
