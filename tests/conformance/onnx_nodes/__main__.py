"""``python -m tests.conformance.onnx_nodes``: ONNX's node suite through the importer and the builder.

Outcomes are appended to a file of JSON lines, so an interrupted run goes on where it stopped (``--resume``).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

from tests.conformance.onnx_nodes.cases import node_cases
from tests.conformance.onnx_nodes.page import page
from tests.conformance.onnx_nodes.trial import Outcome
from tests.conformance.onnx_nodes.workers import outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression of case names")
    parser.add_argument("--again", default="", help="kinds of outcome to run again, such as wrong,crash")
    parser.add_argument("--message", default="", help="with --again: regular expression of the message")
    parser.add_argument("--tuned", action="store_true", help="a random config of every kernel that has any")
    parser.add_argument("--resume", action="store_true", help="run only cases without an outcome")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--page", type=Path, help="write the table of results here")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=1e9, help="start no case after this many seconds")
    options = parser.parse_args()
    path = options.results or Path("build") / f"conformance{'-tuned' if options.tuned else ''}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = read(path)
    kinds = set(options.again.split(",")) if options.again else set()
    chosen = [case for case in node_cases() if re.search(options.only, case.name)]
    if options.resume:
        chosen = [case for case in chosen if case.name not in known]
    if kinds:
        chosen = [c for c in chosen if c.name in known and known[c.name].kind in kinds]
        chosen = [c for c in chosen if re.search(options.message, known[c.name].message)]
    began = time.perf_counter()
    with path.open("a") as stream:
        for outcome in outcomes(chosen, options.tuned, options.jobs):
            was = known.get(outcome.case)
            known[outcome.case] = outcome
            stream.write(json.dumps(outcome.to_data()) + "\n")
            stream.flush()
            if outcome.kind not in ("pass", "refused") or (was and was.kind == "pass" != outcome.kind):
                print(f"{outcome.kind:8} {outcome.case}: {outcome.message[:300]}", file=sys.stderr)
            if time.perf_counter() - began > options.limit_s:
                break
    names = {case.name for case in node_cases()}
    counts = Counter(outcome.kind for name, outcome in known.items() if name in names)
    print(dict(counts))
    if options.page:
        whole = {name: outcome for name, outcome in known.items() if name in names}
        guessed = read(path.with_name("conformance.jsonl")) if options.tuned else whole
        tuned = whole if options.tuned else read(path.with_name("conformance-tuned.jsonl"))
        options.page.write_text(page(guessed, tuned))
    if not set(counts) <= {"pass", "refused"}:
        sys.exit(1)


def read(path: Path) -> dict[str, Outcome]:
    """Case → its latest outcome."""
    if not path.is_file():
        return {}
    lines = (Outcome(**json.loads(line)) for line in path.read_text().splitlines())
    return {outcome.case: outcome for outcome in lines}


if __name__ == "__main__":
    main()
