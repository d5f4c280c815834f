"""Peers are found by name, wherever they come from, and a wrong name or a broken peer is one line."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import pytest

from autotune.validation.peers import peer_catalog
from autotune.validation.peers.peer import Engine, Peer, Work
from autotune.validation.peers.peer_catalog import ALWAYS, GROUP, loader, peer, peer_places
from schedules.vocabulary.errors import AutotuneError, InstallError, UsageError

HERE = __name__


def load(work: Work) -> Engine:
    return Engine("1", "fp32", lambda: work)


OWN = Peer("json", {"own": load}, {"own-clients": load})


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution, with a peer and three that are broken."""
    places = {
        "own": f"{HERE}:OWN",
        "gone": f"{HERE}.nowhere:OWN",
        "empty": f"{HERE}:NOTHING",
        "load": f"{HERE}:load",
        "onnxruntime": f"{HERE}:OWN",
    }
    declared = [EntryPoint(name, place, GROUP) for name, place in places.items()]
    monkeypatch.setattr(peer_catalog, "entry_points", lambda group: declared if group == GROUP else [])
    peer_places.cache_clear()
    yield
    peer_places.cache_clear()


@pytest.mark.parametrize("name", ALWAYS)
def test_every_peer_that_is_always_known_has_ways_of_its_name(name: str) -> None:
    known = peer(name)
    assert known.ways
    assert all(way.startswith(known.package) for way in (*known.ways, *known.clients))
    for way, wanted in {**known.clients, **known.ways}.items():
        assert loader(way) is wanted or way in peer("onnxruntime").ways


@pytest.mark.usefixtures("others")
def test_other_distributions_add_peers_and_replace_none() -> None:
    assert peer("own") is OWN
    assert loader("own") is loader("own-clients") is load
    assert peer("onnxruntime").package == "onnxruntime"


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "cannot be imported (No module named"),
        ("empty", "cannot be imported (module"),
        ("load", "is a function, not a Peer"),
        ("openvno", "unknown; did you mean 'openvino'? choose one of "),
        ("torch-compile", "did you mean 'torch.compile'?"),
    ],
)
def test_a_wrong_name_or_a_broken_peer_is_one_line(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        peer(name)
    assert str(caught.value).startswith(f"--against {name}: ")
    assert "\n" not in str(caught.value)


def test_a_peer_of_a_contribution_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_catalog, "peer_places", lambda: ALWAYS)
    with pytest.raises(InstallError, match=r"torch.compile: .* run: pip install 'tune-compiler\[torch\]'"):
        peer("torch.compile")


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(AutotuneError, match="no engine has a way called fastest"):
        loader("fastest")
