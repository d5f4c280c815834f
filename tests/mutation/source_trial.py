"""``python -m tests.mutation.source_trial --count 60``: which tests find faults in the library's own sources.

A fault is put into a copy of the tree, and the tests run that import its module. A failure counts if the test passes
without the fault. With ``--tests COMMIT`` the tests are those of another commit; two runs tell what a change loses.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tests.architecture import ROOMS, imports, mirror_of, module_name, parsed
from tests.mutation.source_faults import Fault, chosen

ROOT = Path(__file__).parents[2]

LIMIT_S = 900
"""Seconds that the tests of one fault may take; a fault that makes them hang is found."""


def tree_of(root: Path) -> dict[str, str]:
    """Path relative to ``root`` → source of every Python file of the library and its tests."""
    return {
        str(path.relative_to(root)): path.read_text()
        for folder in (*ROOMS, "tests")
        for path in sorted((root / folder).rglob("*.py"))
    }


def importers_in(tree: Mapping[str, str]) -> dict[str, set[str]]:
    """Module → files that import it."""
    importers: dict[str, set[str]] = {}
    for path, source in tree.items():
        for name, _ in imports(path, parsed(source)):
            importers.setdefault(name, set()).add(path)
    return importers


def nearest_tests(path: str, tree: Collection[str], importers: Mapping[str, set[str]], most: int) -> list[str]:
    """Return ``most`` test files that import a module: its own, then direct importers, then importers of those."""
    files, seen, level = [mirror_of(path)] if mirror_of(path) in tree else [], {path}, [path]
    while level and len(files) < most:
        level = sorted({user for user_path in level for user in importers.get(module_name(user_path), ())} - seen)
        seen |= set(level)
        files += [user for user in level if Path(user).name.startswith("test_") and user not in files]
    return files[:most]


def run_tests(copy: Path, tests: Iterable[str], log: Path) -> tuple[str, ...]:
    """Return the ids of the tests that fail in ``copy``, at most one, or a word for what went wrong."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ("timeout",)
    log.write_text(done.stdout + done.stderr)
    failed = [
        line.partition(" ")[2].partition(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    return tuple(failed[:1]) or (() if done.returncode in (0, 5) else (f"exit code {done.returncode}",))


def trial(fault: Fault, copy: Path, tests: Iterable[str], log: Path) -> str:
    """Return the one of ``tests`` that finds a fault, or nothing; ``copy`` is as before afterwards."""
    place = copy / fault.path
    right = place.read_text()
    place.write_text(fault.applied(right))
    try:
        (failed,) = run_tests(copy, tests, log) or ("",)
    finally:
        place.write_text(right)
    if "::" in failed and run_tests(copy, [failed], log.with_suffix(".clean")):
        return ""  # it fails without the fault too
    return failed


def copied(folder: Path, commit: str) -> Path:
    """Return a copy of this tree below ``folder``, with the tests of ``commit`` if one is named."""
    copy = folder / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__"))
    if commit:
        shutil.rmtree(copy / "tests")
        archive = subprocess.run(["git", "archive", commit, "tests"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", copy], input=archive.stdout, check=True)
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.source_trial", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of faults; all otherwise")
    parser.add_argument("--files", type=int, default=12, help="test files that a fault is shown to, the nearest first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", default="", help="commit whose tests run; this tree's otherwise")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "source-faults.jsonl")
    arguments = parser.parse_args()
    library = {path: source for path, source in tree_of(ROOT).items() if not path.startswith("tests/")}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="source-faults-") as folder:
        copy = copied(Path(folder), arguments.tests)
        tree = tree_of(copy)
        importers = importers_in(tree)
        for number, fault in enumerate(chosen(library, arguments.count, arguments.seed)):
            if arguments.only and number not in arguments.only:
                continue
            tests = nearest_tests(fault.path, tree, importers, arguments.files)
            failed = trial(fault, copy, tests, Path(folder, "log"))
            print(f"{number}: {fault}: {failed or 'not found'}", flush=True)
            with arguments.out.open("a") as stream:
                stream.write(json.dumps({"number": number, "fault": str(fault), "found": failed}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
