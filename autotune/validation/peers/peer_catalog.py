"""Peers by name: those that are always known, those of contributions, and those of other distributions."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from autotune.contributions import PEERS, declared, install
from autotune.validation.peers.peer import Loader, Peer
from schedules.vocabulary.choices import choose
from schedules.vocabulary.errors import InstallError, UsageError

GROUP = "tune.peers"
"""The group of their entry points."""

FOLDER = "autotune.validation.peers"

ALWAYS: Mapping[str, str] = {
    "onnxruntime": f"{FOLDER}.onnxruntime_peer:ONNXRUNTIME",
    "onnxruntime-best": f"{FOLDER}.onnxruntime_peer:ONNXRUNTIME_BEST",
    "openvino": f"{FOLDER}.openvino_peer:OPENVINO",
    "openvino-default": f"{FOLDER}.openvino_peer:OPENVINO_DEFAULT",
}
"""Name → the peer. ``openvino`` is held to fp32, as our kernels are; ``openvino-default`` chooses its precision itself:
bf16 where the CPU has instructions for it. ``onnxruntime-best`` is the fastest of a few settings."""


@cache
def peer_places() -> Mapping[str, str]:
    """Return name → ``module:object`` of every known peer."""
    others = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {**others, **declared(GROUP), **ALWAYS}


def peer(name: str) -> Peer:
    """Return the peer called ``name``.

    Raises:
        UsageError: if there is none, with the most similar name, or if its distribution is broken.
        InstallError: if it is that of a contribution that is not installed.
    """
    places = peer_places()
    if name not in places and name in PEERS:
        raise InstallError(f"--against {name}: is in an extra that is not installed; run: {install(PEERS[name])}")
    place = choose("--against", name, {**dict.fromkeys(PEERS, ""), **places})
    try:
        named = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--against {name}: {place} cannot be imported ({error}); install its distribution again"
        ) from error
    if not isinstance(named, Peer):
        raise UsageError(
            f"--against {name}: {place} is a {type(named).__name__}, not a Peer; name one in its entry point"
        )
    return named


def loader(way: str) -> Loader:
    """Return what loads a peer in this way; names of ways are unique.

    Raises:
        UsageError: if there is none.
    """
    for name in sorted(peer_places(), key=lambda known: known not in ALWAYS):
        engine = peer(name)
        ways = {**engine.clients, **engine.ways}
        if way in ways:
            return ways[way]
    raise UsageError(f"no engine has a way called {way}; choose one of {', '.join(sorted(peer_places()))}")
