"""The table of docs/benchmarks.md, made from what ``tune run --json`` and ``tune bench --json`` print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
LOUD = 0.05
"""Share of the CPUs used by others above which a row is marked as disturbed."""

PEERS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO, fp32",
    "openvino-default": "OpenVINO's default",
}
"""Engines that every artifact is compared with → their names in the table."""

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One model's runs, and one comparison of both artifacts with every peer in turn.

    Attributes:
        run: JSON object of ``tune run``.
        auto: that of ``tune run --precision auto``.
        bench: that of ``tune bench``; its first engine is the artifact of ``run``, its last that of ``auto``.
    """

    model: str
    run: Data
    auto: Data
    bench: Data

    @property
    def ms(self) -> dict[str, float]:
        """Median milliseconds of every engine; ours are ``tune`` and ``auto``."""
        *others, auto = self.bench["engines"]
        return {engine["name"]: float(engine["p50_ms"]) for engine in others} | {"auto": float(auto["p50_ms"])}

    @property
    def gain(self) -> float:
        """Speed of the artifact in the model's own precision, relative to the better peer in that precision."""
        return min(self.ms["onnxruntime"], self.ms["openvino"]) / self.ms["tune"]

    @property
    def auto_gain(self) -> float:
        """Speed of the artifact with ``--precision auto``, relative to OpenVINO's default."""
        return self.ms["openvino-default"] / self.ms["auto"]

    @property
    def default_gain(self) -> float:
        """Speed of the artifact in the model's own precision, relative to OpenVINO's default."""
        return self.ms["openvino-default"] / self.ms["tune"]


def table(rows: Sequence[Row], machine: Data, command: str) -> str:
    """Markdown: the machine, the command, a line for each model, and the sums over them."""
    heads = ["model", "`tune run`, s", "with `auto`, s", "ours, fp32 ms", "ours, `auto` ms"]
    heads += [f"{title} ms" for title in PEERS.values()]
    heads += ["fp32 over ONNX Runtime", "fp32 over OpenVINO, fp32", "`auto` over OpenVINO's default"]
    cpu = machine["cpu"]
    speeds = f"{cpu['peak_gflops']:.0f} GFLOPS fp32 and {cpu['memory_gb_s']:.0f} GB/s measured"
    most = max(row.bench["rounds"] for row in rows)
    lines = [
        f"{cpu['model']}, {cpu['threads']} threads, {speeds}.",
        f"Engines: {_engines(rows)}.",
        f"Made by `{command}`; medians of at most {most} rounds. *s*: the entire run.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(_cells(row)) + " |" for row in rows),
        "",
        *summary(rows),
    ]
    if any(row.bench["others_cpu"] > LOUD for row in rows):
        lines += ["", f"\\* disturbed: other processes used more than {LOUD:.0%} of the CPUs meanwhile."]
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> list[str]:
    """Three lines: ranges, geometric means and losses. Readers of README run the default precision first."""
    return [
        gains_line("fp32 against the better of ONNX Runtime and OpenVINO in fp32", [row.gain for row in rows]),
        gains_line("`--precision auto` against OpenVINO's default", [row.auto_gain for row in rows]),
        gains_line("fp32, the default of `tune run`, against OpenVINO's default", [row.default_gain for row in rows]),
    ]


def gains_line(what: str, gains: Sequence[float]) -> str:
    """Return a line with the range, the geometric mean and the losses of one comparison."""
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    behind = sum(gain < 1 for gain in gains)
    lost = f"slower: {behind} of {len(gains)}"
    return f"- {what}: {min(gains):.2f} to {max(gains):.2f} times as fast, {mean:.2f} in the geometric mean; {lost}."


def _engines(rows: Sequence[Row]) -> str:
    """Every engine with its version and the precisions that it chose."""
    engines: dict[str, set[str]] = {}
    for row in rows:
        *others, auto = row.bench["engines"]
        named = [(f"{engine['name']} {engine['version']}", engine["precision"]) for engine in others]
        for name, precision in [*named, ("with auto", auto["precision"])]:
            engines.setdefault(name, set()).add(precision)
    return ", ".join(f"{name} ({', '.join(sorted(precisions))})" for name, precisions in engines.items())


def _cells(row: Row) -> list[str]:
    mark = " \\*" if row.bench["others_cpu"] > LOUD else ""
    times = [f"{row.ms[name]:.3g}" for name in ("tune", "auto", *PEERS)]
    speeds = [_speedup(row.bench, peer) for peer in ("onnxruntime", "openvino")]
    seconds = [f"{run['elapsed_s']:.0f}" for run in (row.run, row.auto)]
    return [row.model + mark, *seconds, *times, *speeds, f"{row.auto_gain:.2f}"]


def _speedup(bench: Data, peer: str) -> str:
    low, high = bench["speedup_quartiles"][peer]
    return f"{bench['speedup'][peer]:.2f} ({low:.2f}–{high:.2f})"


def replaced(page: str, section: str, text: str) -> str:
    """``page`` with what stands between the first markers below the heading ``section`` replaced by ``text``.

    Raises:
        ValueError: if the heading or the markers are not there.
    """
    before, heading, rest = page.partition(f"\n## {section}\n")
    top, begin, rest = rest.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end or "\n## " in top:
        raise ValueError(f"the page has no section {section} with {BEGIN} … {END}")
    return f"{before}{heading}{top}{BEGIN}\n{text}\n{END}{after}"
