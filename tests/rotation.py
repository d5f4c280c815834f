"""The slow tests in groups, one of which runs with every change, so that a few runs cover all of them.

Which group a test is in depends on its own name and on ``rotation.toml`` alone: a new test moves no other one. The file
has the seconds of slow tests, or of all tests of a function or file together. These are dealt out, the longest first,
each to the group that has the least so far. A test without an entry goes where the hash of its name says.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

GROUPS = 5
"""So many runs cover all slow tests."""

SECONDS = Path(__file__).with_name("rotation.toml")
"""The start of a node id, up to ``::`` or ``[`` or its end, → seconds."""


def recorded() -> dict[str, float]:
    """What ``SECONDS`` has."""
    seconds: dict[str, float] = tomllib.loads(SECONDS.read_text())["seconds"]
    return seconds


def dealt(seconds: Mapping[str, float]) -> dict[str, int]:
    """The group of every entry of ``SECONDS``."""
    totals = [0.0] * GROUPS
    groups = {}
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        groups[name] = totals.index(min(totals))
        totals[groups[name]] += seconds[name]
    return groups


def group_of(node: str, groups: Mapping[str, int]) -> int:
    """The group of the test with this node id, 0 to ``GROUPS`` - 1; ``groups`` is as ``dealt`` returns it."""
    function = node.partition("[")[0]
    for name in (node, function, function.partition("::")[0]):
        if name in groups:
            return groups[name]
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:8]) % GROUPS


def chosen(config: pytest.Config) -> int | None:
    """The group that ``--rotation`` names; None runs all.

    Raises:
        pytest.UsageError: if there is no such group.
    """
    group: int | None = config.getoption("--rotation")
    if group is not None and not 0 <= group < GROUPS:
        raise pytest.UsageError(f"--rotation is {group}; there are the groups 0 to {GROUPS - 1}")
    return group


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rotation``."""
    parser.addoption("--rotation", type=int, metavar="N", help=f"only slow tests of group N, 0 to {GROUPS - 1}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not slow or of another group."""
    group = chosen(config)
    if group is None:
        return
    groups = dealt(recorded())
    kept, left = [], []
    for item in items:
        mine = item.get_closest_marker("slow") is not None and group_of(item.nodeid, groups) == group
        (kept if mine else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Name the group and its tests."""
    group = chosen(config)
    if group is None:
        return []
    counts = Counter(item.nodeid.partition("[")[0] for item in items)
    return [
        f"slow tests, group {group} of 0 to {GROUPS - 1}:",
        *(f"  {count} of {name}" for name, count in counts.items()),
    ]
