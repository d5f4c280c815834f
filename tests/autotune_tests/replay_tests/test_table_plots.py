from __future__ import annotations

from pathlib import Path

from autotune.replay.table_plots import write_page
from autotune.replay.tables import Table


def test_a_page_holds_the_table_and_escapes_names(tmp_path: Path) -> None:
    one = Table("A < B", ["name", "x"], [["one", "2"]], {"one": {}}, {"one": {"task": [1.0, 2.0]}})
    page = tmp_path / "page.html"
    write_page(page, [one])
    text = page.read_text()
    assert "<h2>A &lt; B</h2>" in text
    assert "<td>one</td><td>2</td>" in text
