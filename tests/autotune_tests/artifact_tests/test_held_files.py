"""Files that stay readable when they were replaced, and artifacts that are read whole while others take their place."""

import shutil

import pytest

from autotune.artifact import held_files as module
from autotune.artifact.composite import read_composite
from autotune.artifact.held_files import HeldFile, read_whole
from autotune.artifact.replacement import install
from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.composites import pairs
from tests.autotune_tests.runtime_tests.lifetimes import feed_of, same


def folder(path, text):
    path.mkdir()
    (path / "manifest.json").write_text("{}")
    (path / "text").write_text(text)
    return path


def test_a_file_is_the_one_that_was_opened(tmp_path):
    (tmp_path / "x").write_text("old")
    held = HeldFile(tmp_path / "x")
    (tmp_path / "y").write_text("new")
    (tmp_path / "y").replace(tmp_path / "x")
    assert held.place.read_text() == "old"
    (tmp_path / "x").unlink()
    assert held.place.read_text() == "old"


def test_what_was_replaced_while_it_was_read_is_read_again(tmp_path):
    out, fresh = folder(tmp_path / "out", "old"), folder(tmp_path / "fresh", "new")
    seen = []

    def read(path):
        seen.append((path / "text").read_text())
        if len(seen) == 1:
            install(fresh, out)
        return seen[-1]

    assert read_whole(out, read) == "new"
    assert seen == ["old", "new"]


@pytest.mark.parametrize("error", [ArtifactError("files of two artifacts"), FileNotFoundError("gone")])
def test_an_error_of_a_mixture_is_no_error(tmp_path, error):
    out, fresh = folder(tmp_path / "out", "old"), folder(tmp_path / "fresh", "new")
    seen = []

    def read(path):
        seen.append((path / "text").read_text())
        if len(seen) == 1:
            install(fresh, out)
            raise error
        return seen[-1]

    assert read_whole(out, read) == "new"


def test_an_error_of_one_artifact_is_told(tmp_path):
    def read(path):
        raise ArtifactError("it is damaged")

    for path in (folder(tmp_path / "out", "old"), tmp_path / "none"):
        with pytest.raises(ArtifactError, match="damaged"):
            read_whole(path, read)


def test_replacements_without_end_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    out = folder(tmp_path / "out", "old")
    number = iter(range(10**6))

    def read(path):
        install(folder(tmp_path / f"fresh-{next(number)}", "new"), out)

    with pytest.raises(ArtifactError, match=r"out is replaced all the time, for 0.1 s by now; open it when"):
        read_whole(out, read)


@pytest.fixture(scope="module")
def two(tmp_path_factory, measurer):
    return [pairs(tmp_path_factory.mktemp(str(factor)), measurer, factor).artifact for factor in (1, 2)]


def test_parts_that_are_opened_late_are_those_of_the_artifact_that_was_opened(two, tmp_path):
    place, fresh = tmp_path / "place", tmp_path / "fresh"
    shutil.copytree(two[0], place)
    shutil.copytree(two[1], fresh)
    old, new = (InferenceSession(path) for path in two)
    session, composite = InferenceSession(place), read_composite(place)
    first = feed_of(session, 1)
    assert same(session.run(None, first), old.run(None, first))
    install(fresh, place)
    for rows in (8, 3, 9):  # a part that was not opened yet
        feed = feed_of(session, rows)
        assert same(session.run(None, feed), old.run(None, feed))
    assert [composite.open(part).target for part in composite.parts]
    assert session.reload()
    for rows in (1, 8):
        feed = feed_of(session, rows)
        assert same(session.run(None, feed), new.run(None, feed))
        assert not same(session.run(None, feed), old.run(None, feed))


def test_what_is_read_later_by_its_path_is_not_that_of_another_artifact(two, tmp_path):
    place, fresh = tmp_path / "place", tmp_path / "fresh"
    shutil.copytree(two[0], place)
    shutil.copytree(two[1], fresh)
    composite = read_composite(place)
    artifact = composite.open(composite.parts[0])
    install(fresh, place)
    (place / "part-0" / "plan.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"plan\.json was changed"):
        _ = artifact.plan
