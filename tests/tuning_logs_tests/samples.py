"""Records to put into logs: a few by hand, and all that are possible as hypothesis strategies."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path

from hypothesis import strategies as st

from schedules.config import MOST_NUMBER, Config, Value
from schedules.target import Target
from tuning_logs.codec import MOST_SPENT_S
from tuning_logs.measurement import ERROR_KINDS, LEAST_S, MOST_S, ErrorKind, Measurement
from tuning_logs.record import RecordKey, TuningRecord

AVX512 = Target("llvm", isa="avx512", mcpu="sapphirerapids", threads=2)
AVX2 = Target("llvm", isa="avx2", mcpu="sapphirerapids", threads=2)
KEY = RecordKey(task="f00d", target="llvm-avx512-test", space="conv2d/1", tvm="0.27.0")


def other_key(**fields: str) -> RecordKey:
    """KEY with other ``fields``."""
    return dataclasses.replace(KEY, **fields)


def config(number: int, order: str = "nhwc", space: str = KEY.space) -> Config:
    """One of many configs."""
    return Config(space, (("tile", (number, 4)), ("unroll", number), ("order", order)))


def timed(number: int, *latencies_s: float, key: RecordKey = KEY, when: float = 0.0) -> TuningRecord:
    """Config ``number`` measured."""
    return TuningRecord(key, config(number, space=key.space), Measurement(latencies_s), when=when, host="a", seed=1)


def failed(number: int, error: ErrorKind = "compile_error", key: RecordKey = KEY, when: float = 0.0) -> TuningRecord:
    """Config ``number`` tried in vain."""
    return TuningRecord(key, config(number, space=key.space), Measurement(error=error, message="no"), when=when)


# Text as compilers give it: any character, unpaired surrogates and NUL among them, and our own escape.
_texts = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from("\x00\x1a\ud800a0")), max_size=12)
_seconds = st.floats(min_value=0.0, max_value=MOST_SPENT_S, allow_nan=False)
_numbers = st.integers(min_value=-MOST_NUMBER, max_value=MOST_NUMBER)
_values: st.SearchStrategy[Value] = st.one_of(
    _numbers, _texts, st.lists(_numbers, max_size=4).map(lambda parts: tuple(parts))
)
_latencies = st.lists(st.floats(min_value=LEAST_S, max_value=MOST_S), min_size=1, max_size=5)


def configs(spaces: st.SearchStrategy[str] = _texts) -> st.SearchStrategy[Config]:
    """Any config of ``spaces``."""
    return st.builds(Config, spaces, st.dictionaries(_texts, _values, max_size=4).map(lambda d: tuple(d.items())))


def measurements() -> st.SearchStrategy[Measurement]:
    """Any measurement."""
    common = {"message": _texts, "compile_s": _seconds, "run_s": _seconds, "code_hash": _texts}
    return st.one_of(
        st.builds(Measurement, latencies_s=_latencies.map(tuple), **common),
        st.builds(Measurement, error=st.sampled_from(ERROR_KINDS), **common),
    )


def records() -> st.SearchStrategy[TuningRecord]:
    """Any record."""
    return _texts.flatmap(_records_of)


def _records_of(space: str) -> st.SearchStrategy[TuningRecord]:
    return st.builds(
        TuningRecord,
        key=st.builds(RecordKey, _texts, _texts, st.just(space), _texts),
        config=configs(st.just(space)),
        measurement=measurements(),
        trace=_texts,
        when=_seconds,
        host=_texts,
        seed=st.integers(),
        provenance=st.dictionaries(_texts, _texts, max_size=3),
    )


def any_program(task: str, program: str) -> str:
    """A ``ProgramCheck`` that takes every program for its task's: those of these tests are words."""
    return ""


RELEASED = sorted((Path(__file__).parent / "released").glob("*.sql"))


def load(dump: Path, path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text())
    return path
