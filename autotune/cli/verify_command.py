"""``tune verify``: is an artifact right, and where does it begin to be wrong?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.reply import DONE, UNVERIFIED, Reply


def verify(
    artifact: opt.ArtifactFolder,
    model: opt.Model,
    seed: opt.Seed = 0,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="Also check every kernel alone; the first wrong one is told by its ONNX nodes."),
    ] = False,
    as_json: opt.Json = False,
) -> Reply:
    """Compare an artifact's outputs with ONNX Runtime's on random inputs."""
    from dataclasses import asdict

    from autotune.artifact.bundle import is_bundle, parts_of
    from autotune.artifact.chain import is_chain, model_of, read_chain
    from autotune.artifact.directory import read_artifact
    from autotune.importer.guarded_import import load_checked
    from autotune.runtime.segmented_session import ChainSession
    from autotune.validation.bisect import bisect as find_culprit
    from autotune.validation.verify import compare_artifact, compare_session, complaint

    lines: list[str] = []
    complaints: list[str] = []
    data: list[dict[str, Any]] = []
    if is_chain(artifact):
        chain = read_chain(artifact)
        shapes = {value["name"]: tuple(value["shape"]) for value in chain.inputs if value["shape"]}
        verdict = compare_session(ChainSession(artifact), load_checked(model, shapes, foreign=True), seed)
        wrong = [] if verdict.passed else [complaint(artifact, verdict, seed)]
        told = [cli_text.verdict_line(verdict)]
        if bisect:
            first = chain.tuned[0].path
            told.append(
                "an artifact with islands is not bisected; give its tuned segments and their models, "
                f"such as {first} {model_of(first)}"
            )
        return Reply(told, asdict(verdict), as_json, wrong, UNVERIFIED if wrong else DONE)
    for part in parts_of(artifact):
        shapes = {spec.name: spec.shape for spec in read_artifact(part).inputs if spec.shape}
        verdict = compare_artifact(part, load_checked(model, shapes), seed)
        found: dict[str, Any] = {**asdict(verdict), "artifact": str(part)}
        lines.append(cli_text.verdict_line(verdict))
        if not verdict.passed:
            complaints.append(complaint(part, verdict, seed))
        if bisect:
            culprit = find_culprit(part, model, seed)
            found["culprit"] = None if culprit is None else asdict(culprit)
            lines.append("every kernel is right" if culprit is None else culprit.line())
            if culprit is not None and verdict.passed:
                complaints.append(f"{part}: a kernel is wrong though these outputs do not show it; build it again")
        data.append(found)
    whole = {"passed": not complaints, "parts": data} if is_bundle(artifact) else data[0]
    return Reply(lines, whole, as_json, complaints, UNVERIFIED if complaints else DONE)
