"""The page of a comparison opens offline and shows every table, spread and curve."""

from pathlib import Path

from autotune.contrib.replay.table_plots import write_page
from autotune.contrib.replay.tables import Table

CURVES = {
    "random": {"curves": {"net": {"time_s": [0.0, 1.0, 10.0], "ratio": [3.0, 2.0, 1.0]}}},
    "adaptive": {"curves": {"net": {"time_s": [0.0, 1.0, 5.0], "ratio": [3.0, 1.5, 1.0]}}},
}
SERIES = {"random": {"conv": [1.0, 2.0, 3.0, 4.0], "pool": [5.0]}, "adaptive": {"conv": [2.0, 2.0]}}


def test_a_page_holds_tables_spreads_and_curves(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, [Table("Searchers <x>", ["name"], [["random"]], CURVES, SERIES)])
    text = page.read_text()
    assert "<h2>Searchers &lt;x&gt;</h2>" in text
    assert text.count("<svg") == 2
    assert "random, conv: 2.5 (1.75 to 3.25)" in text
    assert "pool · random" in text
    assert "pool · adaptive" not in text
    assert "net: model latency over its final one" in text
    assert "http" not in text
    assert "<script" not in text


def test_a_table_without_series_is_a_table_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, [Table("Empty", ["name"], [["random"]])])
    assert "<svg" not in page.read_text()
