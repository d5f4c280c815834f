"""What the tests of commands share."""

FAST = ("--threads", "1", "--searcher", "random", "--trials", "4", "--quiet")
"""Options of a run that takes a second."""


def one_line(text: str) -> bool:
    """Whether ``text`` is one line of ours."""
    return text.startswith("tune: ") and text.count("\n") == 1
