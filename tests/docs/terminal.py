"""The terminal output in README and tutorial: a real run and a real comparison on this machine, with an empty log."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.evidence.__main__ import machine
from tests.evidence.ledger import release

MODEL = "squeezenet.onnx"
COMMANDS = {
    "run": f"tune run {MODEL} --budget 60s",
    "bench": "tune bench squeezenet.tuned --against onnxruntime,openvino,openvino-default",
}
"""Name of a block → the command behind it."""


def outputs(model: Path) -> dict[str, str]:
    """Run ``COMMANDS`` on ``model`` in an empty folder, with an empty log and cache; return what each printed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(model, Path(folder) / MODEL)
        homes = {"XDG_DATA_HOME": f"{folder}/data", "XDG_CACHE_HOME": f"{folder}/cache"}
        environment = {name: value for name, value in os.environ.items() if name != "TUNE_LOG"} | homes
        printed = {}
        for name, command in COMMANDS.items():
            arguments = [sys.executable, "-m", "autotune", *command.split()[1:]]
            done = subprocess.run(arguments, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            printed[name] = done.stdout
        return printed


def with_outputs(page: str, printed: dict[str, str], caption: str) -> str:
    """Return ``page`` with the text between each block's marks made anew."""
    for name, text in printed.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        block = f"```console\n$ {COMMANDS[name]}\n{text.rstrip()}\n```\n\n{caption}\n"
        page = re.sub(f"{re.escape(begin)}.*?{end}", lambda _: begin + block + end, page, flags=re.DOTALL)  # noqa: B023
    return page


def rewrite(model: Path, pages: list[Path]) -> None:
    """Write the output of a new run into ``pages``."""
    today = datetime.date.today().isoformat()
    run = f"A real run of {release()} with random weights: {machine()}, {today}."
    caption = f"*{run} Ratios vary from run to run; see the benchmarks.*"
    printed = outputs(model)
    for page in pages:
        page.write_text(with_outputs(page.read_text(), printed, caption))
