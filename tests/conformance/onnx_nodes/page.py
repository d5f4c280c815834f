"""docs/conformance.md, made from the outcomes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import onnx

from tests.conformance.onnx_nodes.trial import Outcome

KINDS = ("pass", "refused", "wrong", "crash", "hang", "unnamed")


def page(guessed: Mapping[str, Outcome], tuned: Mapping[str, Outcome]) -> str:
    """The whole page.

    Args:
        guessed, tuned: case → outcome with first guesses and with random configs; ``tuned`` may be empty.
    """
    counts = Counter(outcome.kind for outcome in guessed.values())
    total, constants = len(guessed), sum(outcome.constants for outcome in guessed.values())
    lines = [
        "# Conformance",
        "",
        "Every case of ONNX's node suite (`onnx.backend.test`) is imported, built and run from its artifact. Results",
        f"are compared with the suite's expected outputs. onnx {onnx.__version__}; made by `make conformance`.",
        "",
        "| cases | pass | refused by name | wrong | crash | hang | refused without a name |",
        "|---|---|---|---|---|---|---|",
        f"| {total} | {counts['pass']} ({counts['pass'] / total:.1%}) | "
        + " | ".join(str(counts[kind]) for kind in KINDS[1:])
        + " |",
        "",
        f"Kernels: {_kernels(guessed.values())}.",
        "",
        "How to read it:",
        "",
        "- Kernels have the first guess of their template. Most tensors of the suite are too small for any template.",
        "- Inputs that decide shapes, such as Reshape's shape, are made constants of the model first",
        f"  (`conformance/onnx_nodes/shaping.py`). {constants} cases need this.",
        "- Tolerances are the suite's: rtol 1e-3, atol 1e-7. bfloat16 and fp16 get two roundings. The two inverse DFT",
        "  cases get atol 1e-6, because their expected zeros are 2e-7.",
        "- *Refused* means one sentence that names the operator; nothing is built.",
        "- Out-of-range indices are an error in ONNX. Kernels use the nearest index, and constant ones are refused",
        "  ([correctness](correctness.md#integers-casts-and-indices-at-their-ends)).",
    ]
    if tuned:
        lines += ["", *_tuned_lines(guessed, tuned)]
    lines += ["", "## By operator", "", "A case with an operator's function body counts for that operator.", ""]
    lines += ["| operator | cases | pass | not passed |", "|---|---|---|---|", *_rows(guessed.values())]
    lines += ["", "## What is refused, and why", "", *_refusals(guessed.values())]
    return "\n".join(lines) + "\n"


def _kernels(outcomes: Iterable[Outcome]) -> str:
    """How many were built, and how."""
    built = [(outcome.assembled, outcome.compiled) for outcome in outcomes]
    assembled, compiled = (sum(column) for column in zip(*built, strict=True))
    return f"{assembled} assembled, {compiled:,} compiled"


def _tuned_lines(guessed: Mapping[str, Outcome], tuned: Mapping[str, Outcome]) -> list[str]:
    both = [name for name in tuned if name in guessed]
    same = sum(tuned[name].kind == guessed[name].kind for name in both)
    ran = sum(outcome.tuned > 0 for outcome in tuned.values())
    differ = sorted(name for name in both if tuned[name].kind != guessed[name].kind)
    lines = [
        f"With a random config of every kernel that has any ({ran} cases have one; `make conformance-tuned`),",
        f"{same} of {len(both)} cases end as they do with first guesses. Kernels: {_kernels(tuned.values())}.",
    ]
    if differ:
        lines.append("Not: " + ", ".join(f"`{name}` ({tuned[name].kind})" for name in differ) + ".")
    return lines


def _rows(outcomes: Iterable[Outcome]) -> list[str]:
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        by[outcome.operator][outcome.kind] += 1
    rows = []
    for operator in sorted(by):
        counts = by[operator]
        rest = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS[1:] if counts[kind])
        rows.append(f"| {operator} | {counts.total()} | {counts['pass']} | {rest} |")
    return rows


def _refusals(outcomes: Iterable[Outcome]) -> list[str]:
    by: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.kind != "pass":
            by[outcome.operator].append(outcome)
    lines = []
    for operator in sorted(by):
        first = by[operator][0]
        text = " ".join(first.message.split()).replace("|", "¦")
        lines.append(f"- **{operator}** ({len(by[operator])}): {text[:240]}")
    return lines
