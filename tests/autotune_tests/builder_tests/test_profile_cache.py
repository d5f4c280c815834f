"""Profiles in the log: read where all are there, measured where not, and missed where nothing may be measured."""

import pytest

from autotune.builder.profile_cache import LEAST_S, ProfileCache
from schedules.vocabulary.errors import MissingRecordError
from tests.autotune_tests.tiny import target
from tuning_logs.sql_store import memory_log


def test_what_was_kept_is_read_and_what_takes_no_time_is_positive():
    cache = ProfileCache(memory_log(), target(), frozen=False)
    assert cache.recorded("alone", ["a", "b"], "profiles") is None
    assert cache.keep("alone", ["a", "b"], [0.5, 0.0]) == [0.5, LEAST_S]
    assert cache.recorded("alone", ["b", "a"], "profiles") == [LEAST_S, 0.5]
    assert cache.recorded("busy", ["a"], "profiles") is None
    assert cache.recorded("alone", ["a", "c"], "profiles") is None


def test_a_miss_where_nothing_may_be_measured_says_how_many_are_missing():
    log = memory_log()
    ProfileCache(log, target(), frozen=False).keep("alone", ["a"], [1.0])
    frozen = ProfileCache(log, target(), frozen=True)
    assert frozen.recorded("alone", ["a"], "profiles") == [1.0]
    with pytest.raises(MissingRecordError, match=r"lacks 2 of 3 profiles of tests; tune with the same --lanes"):
        frozen.recorded("alone", ["a", "b", "c"], "profiles of tests")


def test_keys_say_what_was_measured():
    log = memory_log()
    ProfileCache(log, target(), frozen=False).keep("alone", ["a"], [1.0])
    (record,) = log.records()
    assert (record.key.task, record.key.space) == ("a", "lane-alone/1")
