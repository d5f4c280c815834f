"""Which logs must exist, and which are made."""

from contextlib import closing

import pytest

from autotune.tuning import existing_log as logs
from schedules.errors import LogError, MissingRecordError


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


def test_the_user_s_own_log_is_empty_until_it_is_made(own):
    with closing(logs.known_log(None)) as log:
        assert list(log.records()) == []
    assert not own.exists()
    with pytest.raises(LogError):
        logs.known_log(own)


def test_a_frozen_run_needs_the_log_that_it_names(own, tmp_path):
    with pytest.raises(MissingRecordError, match="tune first or merge a log"):
        logs.check_frozen(tmp_path / "t.db")
    logs.made_log(tmp_path / "t.db").close()
    logs.check_frozen(tmp_path / "t.db")
    logs.check_frozen(None)
    logs.check_frozen("postgresql://host/name")
