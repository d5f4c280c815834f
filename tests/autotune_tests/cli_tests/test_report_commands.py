"""``tune report`` and ``tune export`` as commands."""

import json

import pytest

from tests.autotune_tests.reported import BENCHED, make_history


def test_a_bench_can_be_given(answer, tiny, tmp_path):
    make_history(tiny.artifact, bench=False)
    (tmp_path / "bench.json").write_text(json.dumps(BENCHED))
    out = tmp_path / "report.html"
    code, said, _ = answer("report", tiny.artifact, "--out", out, "--bench", tmp_path / "bench.json", "--json")
    assert code == 0
    assert json.loads(said) == {"report": str(out), "bytes": out.stat().st_size}
    assert "×1.50" in out.read_text()


@pytest.mark.parametrize(
    ("text", "hint"), [("{}", "is no bench"), ("[]", "is no bench"), ("{", "is not JSON"), (None, "cannot be read")]
)
def test_a_file_that_is_no_bench_is_refused(answer, tiny, tmp_path, text, hint):
    path = tmp_path / "bench.json"
    if text is not None:
        path.write_text(text)
    code, _, err = answer("report", tiny.artifact, "--bench", path)
    assert code == 2
    assert hint in err
    assert "give what 'tune bench --json' printed" in err


def test_an_export_says_what_it_wrote(answer, tiny_built, tmp_path):
    code, out, _ = answer("export", tiny_built.artifact, "--out", tmp_path / "exported", "--json")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "exported").iterdir()) == json.loads(out)["files"]
