"""The table of docs/benchmarks.md, made from what ``tune run --json`` and ``tune bench --json`` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
LOUD = 0.05
"""Share of the CPUs used by others above which a row is marked as disturbed."""

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One model: its name and budget, and the two JSON objects."""

    model: str
    budget: str
    run: Data
    bench: Data


def table(rows: Sequence[Row], machine: Data, command: str) -> str:
    """Markdown: the machine, the command, one line per model."""
    peers = sorted({name for row in rows for name in row.bench["speedup"]})
    heads = ["model", "budget", "seconds", "trials", "ours ms", *(f"{peer} ms" for peer in peers)]
    heads += [f"speedup over {peer}" for peer in peers]
    cpu = machine["cpu"]
    engines: dict[str, set[str]] = {}
    for engine in (engine for row in rows for engine in row.bench["engines"]):
        engines.setdefault(f"{engine['name']} {engine['version']}", set()).add(engine["precision"])
    named = ", ".join(f"{name} ({', '.join(sorted(precisions))})" for name, precisions in engines.items())
    speeds = f"{cpu['peak_gflops']:.0f} GFLOPS fp32 and {cpu['memory_gb_s']:.0f} GB/s measured"
    lines = [
        f"{cpu['model']}, {cpu['threads']} threads, {speeds}; {named}.",
        f"Made by `{command}`; medians of {rows[0].bench['rounds']} rounds. *Seconds* of the whole `tune run`.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(_cells(row, peers)) + " |" for row in rows),
    ]
    if any(row.bench["others_cpu"] > LOUD for row in rows):
        lines += ["", f"\\* disturbed: other processes used more than {LOUD:.0%} of the CPUs meanwhile."]
    return "\n".join(lines)


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    p50 = {engine["name"]: engine["p50_ms"] for engine in row.bench["engines"]}
    mark = " \\*" if row.bench["others_cpu"] > LOUD else ""
    trials = row.run["measured_trials"] + row.run["reused_records"]
    cells = [row.model + mark, row.budget, f"{row.run['elapsed_s']:.0f}", str(trials), f"{p50['tune']:.2f}"]
    cells += [f"{p50[peer]:.2f}" if peer in p50 else "" for peer in peers]
    return cells + [_speedup(row.bench, peer) for peer in peers]


def _speedup(bench: Data, peer: str) -> str:
    if peer not in bench["speedup"]:
        return ""
    low, high = bench["speedup_quartiles"][peer]
    return f"{bench['speedup'][peer]:.2f} ({low:.2f}–{high:.2f})"


def replaced(page: str, text: str) -> str:
    """``page`` with what stands between the markers replaced by ``text``.

    Raises:
        ValueError: if the markers are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
