"""Faults change one expression of a function, are the same for a seed, and are shown to the nearest tests."""

import ast

from tests.mutation.source_faults import chosen, fault_at, places_of
from tests.mutation.source_trial import importers_in, nearest_tests

SOURCE = '''LIMIT = 3


def clipped(value: int, most: int = 9) -> int:
    """Not 4 but most."""
    if value > most:
        raise ValueError(f"{value} > {most + 1}")
    return min(value, LIMIT) + 2
'''


def faults():
    return {fault.kind: fault for kind, node in places_of(SOURCE) if (fault := fault_at("a.py", SOURCE, kind, node))}


def test_each_kind_changes_one_expression():
    by_kind = {kind: (fault.line, fault.before, fault.after) for kind, fault in faults().items()}
    assert by_kind == {
        "flipped comparison": (6, "value > most", "value >= most"),
        "dropped branch": (6, "value > most", "False"),
        "off by one": (8, "2", "3"),
        "swapped arguments": (8, "min(value, LIMIT)", "min(LIMIT, value)"),
    }
    assert len(places_of(SOURCE)) == len(by_kind), "no fault in signatures, messages and constants of the module"


def test_the_rest_of_the_file_stays():
    for fault in faults().values():
        lines, changed = SOURCE.splitlines(), fault.applied(SOURCE).splitlines()
        assert [number for number, pair in enumerate(zip(lines, changed, strict=True), 1) if pair[0] != pair[1]] == [
            fault.line
        ]
        ast.parse(fault.applied(SOURCE))


def test_a_seed_draws_the_same_faults_from_every_folder():
    tree = {"a/one.py": SOURCE, "b/two.py": SOURCE.replace("3", "5"), "c/none.py": "X = 1\n"}
    assert chosen(tree, 6, seed=1) == chosen(tree, 6, seed=1) != chosen(tree, 6, seed=2)
    assert {fault.path for fault in chosen(tree, 2, seed=1)} == {"a/one.py", "b/two.py"}
    assert len(set(chosen(tree, 6, seed=1))) == 6


def test_the_nearest_tests_come_first():
    tree = {
        "search/pick.py": "",
        "search/loop.py": "from search.pick import best\n",
        "tests/search_tests/test_pick.py": "import search.pick\n",
        "tests/search_tests/test_all.py": "from search import pick\n",
        "tests/search_tests/test_loop.py": "from search.loop import run\n",
        "tests/search_tests/test_other.py": "import json\n",
    }
    names = [path.rpartition("/")[2] for path in nearest_tests("search/pick.py", tree, importers_in(tree), 9)]
    assert names == ["test_pick.py", "test_all.py", "test_loop.py"]
    assert len(nearest_tests("search/pick.py", tree, importers_in(tree), 2)) == 2
