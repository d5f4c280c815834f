"""``python -m tests.evidence run|mark|check|status [SECTION…]``: renew the figures of user pages, or list their age.

``run`` runs the commands of all claims, or of those whose section contains one of the words, one after another on an
otherwise idle machine; the output of each is kept in build/evidence. ``mark`` runs nothing: it writes the line of every
claim below its heading. ``check`` names the pages that ``mark`` would change. ``status`` prints a line for every claim.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.evidence.ledger import ROOT, Claim, marked, pages, read_ledger, release, renewed, write_ledger

OUTPUTS = Path("build/evidence")


def lacking(needs: str) -> str:
    """What of a claim's needs this machine lacks; empty if nothing."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    have = {
        "amx": "amx_tile" in flags,
        "intel": "GenuineIntel" in flags,
        "gpu": Path("/dev/nvidia0").exists(),
        "ray": importlib.util.find_spec("ray") is not None,
        "postgresql": Path("/usr/lib/postgresql").exists() or shutil.which("pg_ctl") is not None,
    }
    return ", ".join(need for need in needs.split() if not have[need])


def machine() -> str:
    """The processor's name and its usable cores."""
    text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    name = re.search(r"Model name:\s*(.*)", text)
    cores = re.search(r"^CPU\(s\):\s*(\d+)", text, re.MULTILINE)
    return f"{name[1] if name else 'unknown'}, {cores[1] if cores else '?'} cores"


def run(claim: Claim) -> Claim | None:
    """The claim with its figures renewed in the page, or None if its command failed."""
    name = re.sub(r"\W+", "-", claim.section).strip("-")
    print(f"{claim.section}: {claim.command} (about {claim.seconds} s)", flush=True)
    done = subprocess.run(claim.command, shell=True, cwd=ROOT, capture_output=True, text=True)
    folder = ROOT / OUTPUTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        print(f"  failed with {done.returncode}: {OUTPUTS / name}.txt", file=sys.stderr)
        return None
    page = ROOT / claim.page
    page.write_text(renewed(page.read_text(), claim, done.stdout))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    today = datetime.date.today().isoformat()
    return replace(claim, version=f"{release()}+{commit.stdout.strip()}", date=today, machine=machine())


def unmarked(claims: Sequence[Claim]) -> dict[Path, str]:
    """Return the pages on which a claim's line is missing or different, with the right text."""
    texts = {}
    for page in pages():
        text = (ROOT / page).read_text()
        new = marked(text, [claim for claim in claims if claim.page == page])
        if new != text:
            texts[page] = new
    return texts


def mark(claims: Sequence[Claim]) -> None:
    """Write the line of every claim below its heading."""
    for page, text in unmarked(claims).items():
        (ROOT / page).write_text(text)


def check(claims: Sequence[Claim]) -> int:
    """Name the pages to be marked; 1 if there are any."""
    pages_left = unmarked(claims)
    for page in pages_left:
        print(f"{page}: differs from its claims; run 'make evidence ACTION=mark'", file=sys.stderr)
    return 1 if pages_left else 0


def status(claims: Sequence[Claim]) -> None:
    """One line per claim."""
    for claim in claims:
        state = "this release" if claim.version.startswith(release()) else claim.version or "constants of the code"
        lacks = lacking(claim.needs)
        print(f"{claim.section}: {state}; {claim.date or 'no date'}{f'; lacks {lacks} here' if lacks else ''}")


def main() -> int:
    """See above; 1 if a command failed or a page is to be marked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "mark", "check", "status"])
    parser.add_argument("sections", nargs="*")
    options = parser.parse_args()
    claims = read_ledger()
    chosen = [c for c in claims if not options.sections or any(word in c.section for word in options.sections)]
    failed = list[str]()
    if options.action == "check":
        return check(claims)
    if options.action == "status":
        status(chosen)
    if options.action == "run":
        for claim in chosen:
            if claim.command and not lacking(claim.needs):
                renewed_claim = run(claim)
                failed += [] if renewed_claim else [claim.section]
                claims[claims.index(claim)] = renewed_claim or claim
                write_ledger(claims)
        measured = [claim for claim in chosen if claim.command]
        left = {claim.section: f"needs {lacking(claim.needs)}" for claim in measured if lacking(claim.needs)}
        print(f"{len(measured) - len(left) - len(failed)} of {len(measured)} claims renewed")
        for section, why in left.items():
            print(f"  left: {section} {why}")
    if options.action != "status":
        mark(read_ledger())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
