"""The pictures of the tutorial: the report in a real browser."""

from __future__ import annotations

import tempfile
from pathlib import Path

from autotune.report.page import write_report
from tests.chromium import Chromium, find_browser


def draw(artifact: Path, out: Path) -> list[Path]:
    """Write the pictures of ``artifact`` to the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    program = find_browser()
    if program is None:
        raise SystemExit("no Chromium or Chrome is installed; apt-get install chromium, then 'make screenshots'")
    drawn = []
    with tempfile.TemporaryDirectory() as folder, Chromium(program) as browser:
        page = write_report(artifact, Path(folder) / "report.html")
        for name, width, height, dark in (("report", 1040, 1120, False), ("report-phone", 390, 1180, True)):
            browser.open(page, width, height, dark)
            browser.shoot(out / f"{name}.png")
            drawn.append(out / f"{name}.png")
    return drawn
