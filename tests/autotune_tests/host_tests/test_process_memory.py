"""The thresholds of a command's own process; a process that only imports the library keeps Python's."""

import subprocess
import sys

LOOK = "import gc; print(gc.get_threshold())"


def printed(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip().splitlines()[-1]


def test_collecting_rarely_sets_the_thresholds():
    code = f"from autotune.host.process_memory import collect_rarely; collect_rarely(); {LOOK}"
    assert printed(code) == "(50000, 20, 50)"


def test_a_command_collects_rarely():
    code = f"import sys; sys.argv = ['tune', '--version']\nfrom autotune.__main__ import main\nmain()\n{LOOK}"
    assert printed(code) == "(50000, 20, 50)"


def test_the_library_leaves_the_thresholds_of_its_caller():
    assert printed(f"import autotune; autotune.Options; {LOOK}") == printed(LOOK)
