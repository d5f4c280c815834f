"""A manifest whose seal is right and whose content is not: every such artifact is refused in one line."""

import copy
import json
import shutil

import pytest

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_artifact, read_tasks
from autotune.artifact.manifest import MANIFEST, kind_of, sealed
from autotune.artifact.plan import Plan
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.composites import two_batches

WRONG = (None, -1, 10**30, float("inf"), "", "1/0", "../x", "9" * 5000, [], {}, [[]])
GONE = object()


def places(data, path=()):
    """Every path to a value in ``data``, of lists the first two."""
    inner = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(data, path, value):
    """A copy of ``data`` with another value at ``path``."""
    whole = inner = copy.deepcopy(data)
    for key in path[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return whole


def read_all(path):
    """Read what a session and the commands read, but for code."""
    if kind_of(path) == "kernels":
        artifact = read_artifact(path)
        return artifact.plan, read_tasks(path), artifact.device_parts, artifact.lane_libraries
    composite = read_composite(path)
    return [composite.open(part) for part in composite.tuned]


def refusal(call):
    """The text of the error that ``call`` raises; empty if it raises none."""
    try:
        call()
    except ArtifactError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["kernels", "shapes"])
def test_whatever_a_manifest_holds_is_read_or_refused(kind, tmp_path, tiny, measurer):
    path = tiny.artifact
    if kind == "shapes":
        path = tmp_path / "copy.tuned"
        shutil.copytree(two_batches(tmp_path, measurer).artifact, path)
    manifest = json.loads((path / MANIFEST).read_text())
    refused = 0
    for place in places(manifest):
        for value in (*WRONG, GONE):
            (path / MANIFEST).write_text(sealed(changed(manifest, place, value)))
            told = refusal(lambda: read_all(path))
            refused += bool(told)
            assert len(told) < 800, place
            assert "\n" not in told, place
    assert refused > 100


@pytest.mark.parametrize("value", [*WRONG, GONE])
def test_whatever_a_plan_holds_is_read_or_refused(value, tiny):
    plan = json.loads((tiny.artifact / "plan.json").read_text())
    for place in places(plan):
        text = json.dumps(changed(plan, place, value))
        assert len(refusal(lambda text=text: Plan.from_json(text))) < 800, place
