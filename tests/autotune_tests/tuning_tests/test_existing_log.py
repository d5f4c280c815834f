"""Which logs must exist, and which are made."""

from contextlib import closing

import pytest

from autotune.tuning import existing_log as logs
from schedules.vocabulary.errors import LogError, MissingRecordError


@pytest.fixture
def own(monkeypatch, tmp_path):
    """Where the user's own log would be."""
    monkeypatch.setattr(logs, "default_log", lambda: tmp_path / "own" / "tuning.db")
    return tmp_path / "own" / "tuning.db"


def test_a_log_is_made_only_where_that_was_asked_for(own, tmp_path):
    with pytest.raises(LogError, match="there is no tuning log at"):
        logs.existing_log(tmp_path / "t.db")
    assert not (tmp_path / "t.db").exists()
    logs.made_log(tmp_path / "t.db").close()
    logs.existing_log(tmp_path / "t.db").close()


def test_a_log_to_look_up_in_is_empty_until_it_is_made(own, tmp_path, caplog):
    with closing(logs.known_log(None)) as log:
        assert list(log.records()) == []
    assert not caplog.text
    with closing(logs.known_log(tmp_path / "t.db")) as log:
        assert list(log.records()) == []
    assert f"there is no tuning log at {tmp_path / 't.db'}, so no records are known" in caplog.text
    assert not own.exists()
    assert not (tmp_path / "t.db").exists()


def test_a_frozen_run_needs_the_log_that_it_names(own, tmp_path):
    with pytest.raises(MissingRecordError, match="tune first or merge a log"):
        logs.check_frozen(tmp_path / "t.db")
    logs.made_log(tmp_path / "t.db").close()
    logs.check_frozen(tmp_path / "t.db")
    logs.check_frozen(None)
    logs.check_frozen("postgresql://host/name")
