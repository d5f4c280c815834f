"""Mutated rows and lines of a tuning log, seeded: what a stranger might put into one."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path

import numpy as np

from autotune.importer.program import Program
from schedules.target import Target
from tests.autotune_tests.cli_tests.hostile_records import chain, line_of
from tuning_logs.codec import text_hash, to_data
from tuning_logs.record import TuningRecord

TEXTS = (
    "\x1b]0;owned\x07",
    "\u202egnp.exe",
    "a\nb",
    "[link=file:///etc/passwd]x[/link]",
    "<script>",
    "\ud800",
    "%s{0}",
)
NUMBERS = (1e300, -1e300, 2.0**63, 10**400, -1, 0, True, None, "nan", [], {}, 4e9, 1e-320)
HUGE = f'{{"space":"baseline/1","knobs":{{"a":{10**30}}}}}'
NESTED = "[" * 20_000 + "]" * 20_000


class Mutations:
    """Draws hostile lines and rows.

    Args:
        program: whose tasks the records are of.
        records: sound ones.
        canary: the file that no line may create.
    """

    def __init__(self, program: Program, target: Target, records: list[TuningRecord], canary: Path, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._records = [to_data(record) for record in records]
        self._chain = chain(program, target, canary)
        self._programs = list(program.programs.items())
        self._target = json.loads(target.to_json())

    def _pick(self, choices):  # type: ignore[no-untyped-def]
        return choices[int(self._rng.integers(len(choices)))]

    def record(self) -> dict[str, object]:
        """The data of a record of which something is wrong."""
        if self._rng.random() < 0.2:
            return dict(self._pick(self._chain))
        data = dict(self._pick(self._records))
        name = self._pick(sorted(data))
        data[name] = self._pick((*TEXTS, *NUMBERS, self._pick(self._records)[self._pick(sorted(data))]))
        if self._rng.random() < 0.2:
            data["config"] = self._pick((NESTED, HUGE, "{}", data["config"]))
        if self._rng.random() < 0.1:
            data["space"] = self._pick(("baseline/1", "metaschedule/1", "conv2d/4"))
        return data

    def line(self) -> bytes:
        """A line of a JSONL file."""
        kind = int(self._rng.integers(7))
        if kind == 0:
            return self._damaged(self._sealed("record", self._pick(self._records)))
        if kind == 1:
            return self._pick((NESTED, f'{{"kind":"record","body":{NESTED},"digest":""}}', "[]", "7", "")).encode()
        if kind == 2:
            (task, _), (_, program) = self._pick(self._programs), self._pick(self._programs)
            odd = (program, program.replace("tirx.PrimFunc", "ir.EnvFunc"), program[:-7], NESTED, "x" * 100)
            return self._sealed("workload", {"task": task, "program": self._pick(odd)})
        if kind == 3:
            described = {**self._target, self._pick(sorted(self._target)): self._pick((*NUMBERS, *TEXTS))}
            return self._sealed("target", described)
        return self._sealed("record", self.record())

    def _sealed(self, kind: str, body: object) -> bytes:
        try:
            return line_of(kind, body).encode()
        except ValueError:  # a number that JSON cannot hold
            return json.dumps({"kind": kind, "body": body, "digest": ""}).encode("ascii", "replace")

    def _damaged(self, line: bytes) -> bytes:
        text = bytearray(line)
        for _ in range(int(self._rng.integers(1, 6))):
            text[int(self._rng.integers(len(text)))] = int(self._rng.integers(256))
        return bytes(text).replace(b"\n", b" ")

    def deface(self, path: Path, rows: int) -> None:
        """Add ``rows`` rows to the log at ``path`` and spoil each, as somebody who may write to the file can."""
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            columns = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
            models = connection.execute("SELECT * FROM records").fetchall()
            for number in range(rows):
                row = dict(zip(columns, self._pick(models), strict=True)) | {"id": None}
                row |= {"digest": number.to_bytes(16, "big"), **self._spoilt(row)}
                names = ", ".join(row)
                connection.execute(
                    f"INSERT OR IGNORE INTO records ({names}) VALUES ({', '.join('?' * len(row))})",
                    list(row.values()),
                )
        connection.close()

    def _spoilt(self, row: dict[str, object]) -> dict[str, object]:
        kind = int(self._rng.integers(8))
        if kind < 2:
            config = str(self._pick(self._chain)["config"])
            return {"config": config, "config_hash": text_hash(config)} | _latency(1e-9)
        if kind == 2:
            return {"measured_at": self._pick((1e300, -1e300, float("inf"), 9e9, "late"))} | _latency(1e-9)
        if kind == 3:
            return {"trace": zlib.compress(bytes(200 << 20))} if self._rng.random() < 0.003 else {"trace": 1 << 40}
        if kind == 4:
            return {"latency_s": 1e-12}
        if kind == 5:
            return {"provenance": self._pick((NESTED, "7", "{", '{"wall_s": "1e300"}', '{"stage": {}}'))}
        if kind == 6:
            return {self._pick(("host", "message", "code_hash")): self._pick(TEXTS[:5])}
        return {
            self._pick(("key_id", "seed", "error", "compile_s", "config")): self._pick((7, "odd", 1e300, b"\xff", ""))
        }


def _latency(seconds: float) -> dict[str, object]:
    return {"latency_s": seconds, "latencies_s": np.array([seconds], "<f8").tobytes(), "error": None}
