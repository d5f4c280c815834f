"""Tests of a contribution are slow ones unless the last commit or the working tree touches it or them."""

import subprocess
from pathlib import Path

import pytest

from tests.autotune_tests.cli_tests.conftest import answer, faked  # noqa: F401  # of the command line's tests

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHARED = ("autotune/contributions.py", "tests/autotune_tests/contrib_tests/conftest.py")


def touched():
    """Names of the contributions that changed; None where git does not say."""
    command = ["git", "diff", "--name-only", "HEAD~1"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return None if done.returncode else contributions_of(done.stdout.splitlines())


def contributions_of(files):
    """Names of the contributions that ``files`` belong to."""
    every = {path.name.removesuffix("_tests") for path in HERE.glob("*_tests")}
    own = {part.removesuffix("_tests") for file in files if "contrib" in file for part in file.split("/")} & every
    return every if {*SHARED} & {*files} else own


def pytest_collection_modifyitems(items):
    changed = touched()
    for item in items:
        if changed is not None and HERE in item.path.parents:
            name = item.path.relative_to(HERE).parts[0].removesuffix("_tests")
            if name not in changed and (HERE / f"{name}_tests").is_dir():
                item.add_marker(pytest.mark.slow)
