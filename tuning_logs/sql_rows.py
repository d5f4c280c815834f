"""TuningRecord ↔ one row of the ``records`` table, and packed forms of its long fields."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Any, cast

from sqlalchemy import Row

from schedules.config import Config
from schedules.errors import LogError, UsageError
from tuning_logs.codec import content_hash, text_hash, to_data
from tuning_logs.measurement import ErrorKind, Measurement
from tuning_logs.record import RecordKey, TuningRecord


def packed_text(text: str) -> bytes:
    """Compressed ``text``; nothing for an empty one."""
    # Level 1: traces and programs shrink some 5x already, and appending must not wait for the rest.
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 1) if text else b""


def unpacked_text(raw: bytes) -> str:
    """Inverse of ``packed_text``."""
    return zlib.decompress(raw).decode("utf-8", "surrogatepass") if raw else ""


def program_sha256(program: str) -> str:
    """Hex digest kept beside a program, so that ``verify`` can tell damage."""
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()


def to_row(record: TuningRecord, key_id: int) -> dict[str, Any]:
    """Column values of ``record``, all but ``id``."""
    data = to_data(record)
    latencies = data["latencies_s"]
    return {
        "digest": content_hash(data),
        "key_id": key_id,
        "config": data["config"],
        "config_hash": text_hash(data["config"]),
        "latency_s": record.measurement.latency_s if latencies else None,
        "latencies_s": struct.pack(f"<{len(latencies)}d", *latencies) if latencies else None,
        "error": data["error"],
        "message": data["message"],
        "compile_s": data["compile_s"],
        "run_s": data["run_s"],
        "code_hash": data["code_hash"],
        "trace": packed_text(data["trace"]),
        "measured_at": data["when"],
        "host": data["host"],
        "seed": str(data["seed"]),
        "provenance": json.dumps(data["provenance"], sort_keys=True, separators=(",", ":")),
    }


def from_row(row: Row[Any], key: RecordKey) -> TuningRecord:
    """The record in a row of ``records`` whose key number stands for ``key``.

    Raises:
        LogError: if a field cannot be decoded, that is, if the file was damaged.
    """
    try:
        return TuningRecord(
            key=key,
            config=Config.from_json(row.config),
            measurement=Measurement(
                latencies_s=() if row.latencies_s is None else _floats(row.latencies_s),
                error=cast("ErrorKind | None", row.error),
                message=row.message,
                compile_s=row.compile_s,
                run_s=row.run_s,
                code_hash=row.code_hash,
            ),
            trace=unpacked_text(row.trace),
            when=row.measured_at,
            host=row.host,
            seed=int(row.seed),
            provenance=json.loads(row.provenance),
        )
    except (ValueError, TypeError, struct.error, zlib.error, UsageError) as error:
        raise LogError(
            f"record {row.id} of the tuning log is damaged ({error}); "
            "'tune log verify' lists such records and 'tune log gc' can drop them"
        ) from error


def _floats(raw: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(raw) // 8}d", raw)
