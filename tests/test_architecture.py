"""The project keeps the rules of tests/architecture.py, and every rule is shown to catch what it forbids."""

import tomllib
from pathlib import Path

import pytest

from tests import architecture
from tests.architecture import (
    MAX_FILES_AT_TOP,
    MAX_FILES_PER_FOLDER,
    OUTSIDE,
    ROOMS,
    RULES,
)
from tests.larger import LARGER, MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_METHODS, MAX_TEST_LINES

ROOT = Path(__file__).parents[1]


def project():
    """Every source of the rooms and the tests."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in (*ROOMS, *OUTSIDE)
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_keeps(rule):
    assert rule(project()) == []


LONG_FUNCTION = "def long():\n" + "    x = 1\n" * MAX_FUNCTION_LINES

BROKEN = {
    "import_direction": [
        {"schedules/a.py": "import search.searchers.searcher"},
        {"schedules/a.py": "from tuning_logs.record import RecordKey"},
        {"tuning_logs/a.py": "def f():\n    from costmodels import base"},
        {"search/a.py": "import autotune"},
        {"costmodels/a.py": "from ..search import base"},
        {"autotune/a.py": "from tests import models"},
        {"search/a.py": "import research.page"},
    ],
    "sub_package_order": [
        {"autotune/host/a.py": "from autotune.measure.racing import race"},
        {"autotune/runtime/a.py": "def f():\n    import autotune.cli.main"},
        {"autotune/elsewhere/a.py": "x = 1"},
        {
            "autotune/importer/onnx_model/a.py": "from autotune.importer.layouts.b import c",
            "autotune/importer/layouts/b.py": "",
        },
        {
            "autotune/importer/operators/a.py": "def f():\n    from autotune.importer.operators.dynamic import b",
            "autotune/importer/operators/dynamic/b.py": "",
        },
        {"autotune/importer/images/a.py": "import autotune.importer.load", "autotune/importer/load.py": ""},
        {"autotune/importer/elsewhere/a.py": ""},
        {"autotune/importer/a.py": "from autotune.contrib.classical.scores import x"},
        {"autotune/cli/a.py": "def f():\n    import autotune.contrib.replay.tables"},
        {"autotune/contrib/ray/a.py": "from autotune.contrib.replay import tables"},
    ],
    "folder_sizes": [
        {f"search/a{number}.py": "" for number in range(MAX_FILES_PER_FOLDER + 1)},
        {f"autotune/a{number}.py": "" for number in range(MAX_FILES_AT_TOP + 1)},
    ],
    "unique_names": [{"search/catalog.py": "", "costmodels/catalog.py": ""}],
    "mirrored_tests": [
        {"search/a.py": "", "search/b.py": "", "tests/search_tests/test_a.py": ""},
        {"autotune/host/a.py": "", "tests/autotune_tests/test_a.py": ""},
    ],
    "arguments": [
        {"search/a.py": "def f(a, b, c, d, e, f, *, g, h): pass"},
        {"search/a.py": "class A:\n    def __init__(self, a, b, c, d, e, f, g, h): pass"},
    ],
    "broad_excepts": [
        {"search/a.py": "try:\n    f()\nexcept Exception:\n    g()"},
        {"search/a.py": "try:\n    f()\nexcept Exception:  # why\n    g()\n" * 2},
    ],
    "private_names": [{"autotune/host/a.py": "from schedules.space import _rows"}],
    "target_kinds": [{"autotune/host/a.py": "if target.kind == 'cuda':\n    pass"}],
    "library_homes": [
        {"search/a.py": "import tvm"},
        {"costmodels/a.py": "from tvm import te"},
        {"schedules/space.py": "from tvm.ir import IRModule"},
        {"tuning_logs/a.py": "import tvm_ffi"},
        {"autotune/a.py": "import skopt"},
        {"search/random.py": "from sklearn.ensemble import RandomForestRegressor"},
        {"costmodels/forest.py": "import xgboost as xgb"},
    ],
    "pure_rooms": [
        {"search/a.py": "import time"},
        {"costmodels/a.py": "from datetime import datetime"},
        {"schedules/a.py": "from pathlib import Path"},
        {"search/a.py": "import os.path"},
        {"search/a.py": "def f():\n    return open('x')"},
        {"schedules/a.py": "import subprocess"},
    ],
    "environment": [
        {"autotune/tuning/loop.py": "import os\nx = os.environ['X']"},
        {"tuning_logs/a.py": "import os\nx = os.getenv('X')"},
        {"autotune/a.py": "from os import environ"},
        {"autotune/measure/a.py": "from os import getenv as g"},
    ],
    "printing": [{"autotune/tuning/loop.py": "print('hello')"}, {"search/a.py": "def f():\n    print(1)"}],
    "sizes": [
        {"autotune/a.py": "x = 1\n" * (MAX_FILE_LINES + 1)},
        {"search/a.py": LONG_FUNCTION},
        {"tests/test_a.py": LONG_FUNCTION},
        {"tests/test_a.py": "x = 1\n" * (MAX_TEST_LINES + 1)},
        {"schedules/templates/cpu/winograd.py": LONG_FUNCTION.replace("long", "stages") + "    x = 1\n" * 9},
        {"autotune/a.py": "class A:\n" + "".join(f"    {line}\n" for line in LONG_FUNCTION.splitlines())},
        {"autotune/a.py": "class A:\n" + "".join(f"    def f{n}(self): pass\n" for n in range(MAX_METHODS + 1))},
    ],
    "names_only": [
        {"autotune/__init__.py": "def tune():\n    pass"},
        {"search/__init__.py": "class A:\n    pass"},
        {"search/__init__.py": "import logging\nlogging.basicConfig()"},
        {"search/__init__.py": "for x in range(3):\n    y = x"},
    ],
    "local_imports": [
        {"search/a.py": "def f():\n    import math"},
        {"autotune/a.py": "class A:\n    def f(self):\n        from tvm import te"},
        {"autotune/a.py": "def f():\n    import onnxruntime\n    import numpy"},
    ],
    "import_cycles": [
        {"search/a.py": "if TYPE_CHECKING:\n    import search.b", "search/b.py": "import search.a"},
        {"search/a.py": "import search.b", "search/b.py": "import search.a"},
        {
            "search/a.py": "from search import b",
            "search/b.py": "from search.c import x",
            "search/c.py": "from . import a",
        },
        {"autotune/__init__.py": "from autotune.a import x", "autotune/a.py": "import autotune"},
        {"search/a.py": "try:\n    import search.b\nexcept ImportError:\n    pass", "search/b.py": "import search.a"},
    ],
    "names": [
        {"search/utils.py": "x = 1"},
        {"autotune/file_helpers.py": "x = 1"},
        {"autotune/measure/manager/a.py": "x = 1"},
        {"autotune/a.py": "class WorkerManager:\n    pass"},
        {"autotune/a.py": "class TaskScheduler:\n    pass"},
        {"search/a.py": "def _copy_helper():\n    pass"},
    ],
    "checked_records": [
        {"autotune/builder/a.py": "best = log.best(key)"},
        {"autotune/tuning/a.py": "def f(self):\n    return [r for r in self._log.records(key)]"},
        {"autotune/a.py": "request.log.fastest(key, 3)"},
    ],
    "unfinished": [
        {"search/a.py": "x = 1  # TODO later"},
        {"search/a.py": "try:\n    x = 1\nexcept Exception:\n    pass"},
        {"search/a.py": "for x in y:\n    try:\n        z()\n    except:\n        continue"},
    ],
}


@pytest.mark.parametrize(
    ("rule", "tree"),
    [(rule, tree) for rule in RULES for tree in BROKEN[rule.__name__]],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_rule_catches(rule, tree):
    assert rule(tree)


GOOD = {
    "schedules/lower.py": "import tvm\nimport numpy as np",
    "schedules/templates/cpu/conv2d.py": "from tvm import te\nfrom schedules.config import Config",
    "schedules/config.py": "import json",
    "costmodels/boosted.py": "import xgboost\nfrom tuning_logs.record import RecordKey",
    "search/searchers/bayesian.py": "from skopt import Optimizer\nfrom costmodels.cost_model import CostModel",
    "search/searchers/searcher.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
    "search/loop.py": "from search.searchers.searcher import x\ndef f(console):\n    console.print('not the builtin')",
    "tuning_logs/store.py": "import sqlite3\nimport time",
    "autotune/cli/main.py": "import os\nprint(os.environ['HOME'])\ndef f():\n    import tvm",
    "autotune/validation/verify.py": "def f():\n    import onnxruntime\n    import csv  # slow to import",
    "autotune/__init__.py": "'''D'''\nfrom autotune.cli.main import f\n__all__ = []\ndef __getattr__(n):\n    pass",
    "autotune/tuning/job.py": "log.best(key, space)\nlog.fastest(key, 3, space=s)\nannealer.best(x)\njob.records(y)",
    "autotune/cli/log_commands.py": "store.best(key)",
    "autotune/contrib/ray/a.py": "from autotune.contrib.ray import b\nfrom autotune.importer.load import load_model",
    "tests/test_a.py": "import autotune\nprint(1)",
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_lets_good_code_be(rule):
    assert rule(GOOD) == []


@pytest.mark.parametrize("path", LARGER)
def test_what_keeps_its_limit_is_no_exception(path, monkeypatch):
    monkeypatch.setattr(architecture, "LARGER", {})
    told = architecture.sizes({path: (ROOT / path).read_text(encoding="utf-8")})
    assert {line.split(" has ")[0].partition(" ")[2] for line in told} == set(LARGER[path])


def test_every_package_is_listed():
    """setuptools does not discover several top-level packages, so a new folder must be listed to be installed."""
    projects = [ROOT / "pyproject.toml", *sorted((ROOT / "autotune" / "contrib").glob("*/pyproject.toml"))]
    listed = [name for file in projects for name in tomllib.loads(file.read_text())["tool"]["setuptools"]["packages"]]
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert sorted(listed) == sorted(".".join(folder.parts) for folder in folders)


def test_every_folder_is_a_package():
    """Without ``__init__.py`` a test folder's modules shadow the rooms, and a room's are not installed."""
    for folder in (*ROOMS, *OUTSIDE):
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


def test_every_room_is_typed():
    assert all((ROOT / room / "py.typed").exists() for room in ROOMS)
