"""TuningRecord ↔ plain JSON data ↔ one row of the ``records`` table, and the digest that is a record's identity.

The digest covers every field. A field added to TuningRecord later must be left out of ``to_data`` while it holds
its default, so that the digests of older records stay what they are.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import struct
import zlib
from typing import Any

from sqlalchemy import Row

from schedules.config import Config
from schedules.vocabulary.bounded import DAMAGE, MOST_DEPTH, parsed_json, unpacked
from schedules.vocabulary.errors import AutotuneError, LogError, first_line
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord

DIGEST_BYTES = 16
"""Length of a record's name. Among 2^32 records two share one with a probability below 2^-64."""

MOST_CHARACTERS = 1 << 20
"""Longest text of a record but its trace. Messages of compilers take kilobytes."""

MOST_TRACE_CHARACTERS = 16 << 20
"""Longest trace of a record; some hundred kilobytes were seen."""

MOST_SPENT_S = 1e9
"""Most seconds that compiling or running one candidate may have taken: thirty years."""

CLOCKS_APART_S = 86_400.0
"""How far ahead of this machine's clock that of another may be."""

LATEST_S = float(1 << 33)
"""Seconds since the epoch that no record gives: in the year 2242."""

_SAME_IN_ROW = ("config", "error", "message", "compile_s", "run_s", "code_hash", "host")
"""Fields that a row holds as ``to_data`` gives them."""


def to_data(record: TuningRecord) -> dict[str, Any]:
    """JSON-able fields of ``record``; numbers are given their one canonical type.

    Raises:
        LogError: if a number is not finite, which JSON cannot hold.
    """
    measurement = record.measurement
    return {
        **vars(record.key),
        "config": record.config.to_json(),
        "latencies_s": [float(latency) for latency in measurement.latencies_s],
        "error": measurement.error,
        "message": measurement.message,
        "compile_s": _number(measurement.compile_s),
        "run_s": _number(measurement.run_s),
        "code_hash": measurement.code_hash,
        "trace": record.trace,
        "when": _number(record.when),
        "host": record.host,
        "seed": int(record.seed),
        "provenance": record.provenance,
    }


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise LogError(f"a record holds {value!r} where a finite number of seconds belongs; the record was not stored")
    return float(value) + 0.0  # -0.0 becomes 0.0: SQLite does not keep its sign


def from_data(data: object) -> TuningRecord:
    """Inverse of ``to_data``.

    Raises:
        LogError: if ``data`` is not what ``to_data`` gives, or a field is out of its bounds.
    """
    if not isinstance(data, dict):
        raise LogError(f"a record must be a JSON object, not of type {type(data).__name__}")
    try:
        return TuningRecord(
            key=RecordKey(*(_text(data, name) for name in ("task", "target", "space", "tvm"))),
            config=Config.from_json(_text(data, "config")),
            measurement=Measurement(
                latencies_s=tuple(float(latency) for latency in data["latencies_s"]),
                error=data["error"],
                message=_text(data, "message"),
                compile_s=_between(0.0, data["compile_s"], MOST_SPENT_S, "compile_s"),
                run_s=_between(0.0, data["run_s"], MOST_SPENT_S, "run_s"),
                code_hash=_text(data, "code_hash"),
            ),
            trace=_text(data, "trace", MOST_TRACE_CHARACTERS),
            when=_between(-CLOCKS_APART_S, data["when"], LATEST_S, "when"),
            host=_text(data, "host"),
            seed=int(data["seed"]),
            provenance={str(name): str(value) for name, value in data["provenance"].items()},
        )
    except KeyError as error:
        raise LogError(f"not a record: it has no {error}"[:300]) from error
    except (*DAMAGE, AutotuneError) as error:
        raise LogError(f"not a record: {first_line(error)}"[:300]) from error


def _text(data: dict[str, Any], name: str, most: int = MOST_CHARACTERS) -> str:
    value = data[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is of type {type(value).__name__} and must be text")
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} characters, more than {most}")
    return value


def _between(least: float, value: object, most: float, name: str) -> float:
    if not isinstance(value, int | float) or not least <= value <= most:  # false for NaN, too
        raise ValueError(f"{name} is {ascii(value)[:40]} and must be a number from {least:g} to {most:.0f}")
    return _number(value)


def canonical(data: object) -> bytes:
    """The one JSON text of ``data``: sorted fields, no spaces, ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def content_hash(data: object) -> bytes:
    """(16,) bytes that name JSON-able ``data``."""
    return hashlib.blake2b(canonical(data), digest_size=DIGEST_BYTES).digest()


def digest(record: TuningRecord) -> bytes:
    """(16,) bytes that name ``record``: equal contents have equal digests in every log."""
    return content_hash(to_data(record))


def text_hash(text: str) -> int:
    """Signed 64-bit hash of ``text``, as a database's integer column holds it."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "little", signed=True)


def packed_text(text: str) -> bytes:
    """Compressed ``text``; nothing for an empty one."""
    # Level 1: traces and programs shrink some 5x already, and appending must not wait for the rest.
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1) if text else b""


def unpacked_text(raw: bytes) -> str:
    """Inverse of ``packed_text``.

    Raises:
        ValueError: if the bytes are damaged, or become too many.
    """
    return unpacked(raw).decode("utf-8", "surrogatepass") if raw else ""


def program_sha256(program: str) -> str:
    """Hex digest kept beside a program, by which ``verify`` finds damage."""
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()


def to_row(record: TuningRecord, key_id: int) -> dict[str, Any]:
    """Column values of ``record``, all but ``id``."""
    data = to_data(record)
    latencies = data["latencies_s"]
    return {
        **{name: data[name] for name in _SAME_IN_ROW},
        "digest": content_hash(data),
        "key_id": key_id,
        "config_hash": text_hash(data["config"]),
        "latency_s": record.measurement.latency_s if latencies else None,
        "latencies_s": struct.pack(f"<{len(latencies)}d", *latencies) if latencies else None,
        "trace": packed_text(data["trace"]),
        "measured_at": data["when"],
        "seed": str(data["seed"]),
        "provenance": canonical(data["provenance"]).decode("ascii"),
    }


def from_row(row: Row[Any], key: RecordKey | None) -> TuningRecord:
    """The record in a row of ``records`` whose key number stands for ``key``; None is a key that the log has lost.

    Raises:
        LogError: if a field cannot be decoded, or the key is lost, that is, if the file was damaged.
    """
    try:
        packed = row.latencies_s or b""
        latencies = struct.unpack(f"<{len(packed) // 8}d", packed)
        # What the database sorts and groups by has to be what the record says.
        if row.latency_s != (statistics.median(latencies) if latencies else None):
            raise ValueError("its latency is not the median of its runs")
        if row.config_hash != text_hash(row.config):
            raise ValueError("its config does not match its hash")
        return from_data(
            {
                **{name: getattr(row, name) for name in _SAME_IN_ROW},
                **vars(key),
                "latencies_s": latencies,
                "trace": unpacked_text(row.trace),
                "when": row.measured_at,
                "seed": row.seed,
                "provenance": parsed_json(row.provenance, MOST_DEPTH),
            }
        )
    except (*DAMAGE, struct.error, LogError) as error:
        raise LogError(
            f"record {row.id} of the tuning log is damaged ({error}); "
            "'tune log verify' lists such records and 'tune log gc' can drop them"
        ) from error
