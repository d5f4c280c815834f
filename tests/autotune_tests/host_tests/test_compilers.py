"""The tools of this machine and of others: their names, and what is said where one is missing."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest

from autotune.host import compilers
from autotune.host.compilers import check_compiler, compile_with, cross_prefix, run_binutils, run_tool
from schedules.vocabulary.errors import InstallError

FOREIGN = "riscv64" if platform.machine() != "riscv64" else "aarch64"


def test_this_machine_s_tools_have_no_prefix(tmp_path: Path) -> None:
    assert cross_prefix("") == cross_prefix(platform.machine()) == ""
    (tmp_path / "a.cc").write_text('extern "C" int seven() { return 7; }')
    compile_with(["-c", str(tmp_path / "a.cc"), "-o", str(tmp_path / "a.o")])
    assert "seven" in run_binutils("nm", [str(tmp_path / "a.o")])


def test_those_of_another_architecture_are_named_as_debian_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cross_prefix(FOREIGN) == f"{FOREIGN}-linux-gnu-"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InstallError, match=f"the package g\\+\\+-{FOREIGN}-linux-gnu"):
        compile_with(["-v"], FOREIGN)


def test_a_tool_that_is_missing_or_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InstallError, match="no-such-tool was not found; buy one"):
        run_tool("no-such-tool", [], "buy one")
    with pytest.raises(InstallError, match=r"nm failed: .*nowhere"):
        run_binutils("nm", ["/nowhere"])
    monkeypatch.setattr(compilers.cc, "get_cc", lambda: None)
    with pytest.raises(InstallError, match="no C\\+\\+ compiler was found"):
        check_compiler()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status",
            "free some disk",
        ),
        ("ld: cannot find -lx\ncollect2: error: ld returned 1 exit status", "failed: ld: cannot find -lx; buy one"),
        ("collect2: fatal error: ld terminated with signal 9", "failed: collect2: fatal error"),
        ("", "failed: it ended with status 3; buy one"),
    ],
)
def test_a_tool_that_fails_says_why(said: str, told: str) -> None:
    with pytest.raises(InstallError, match=re.escape(told)):
        run_tool("sh", ["-c", f"printf '%s' '{said}' >&2; exit 3"], "buy one")
