"""The simulated machines: the arithmetic of the model, on profiles whose answers are known."""

from dataclasses import replace

import pytest

from research.machines import NODE_BYTES_PER_S, REMOTE, Machine, Profile, cuts, served

PROFILE = Profile("toy", "none", one_s=8e-3, two_s=4e-3, beside_s=8e-3, weights=1 << 20)


def test_what_scales_perfectly_answers_as_much_in_every_cut():
    rates = [cut.requests_per_s for cut in cuts(PROFILE, Machine(2, 8))]
    assert rates == pytest.approx([16 / 8e-3] * 5)


def test_a_serial_share_favours_narrow_streams():
    serial = replace(PROFILE, two_s=6e-3)  # half of it
    assert serial.alone_s(4) == pytest.approx(4e-3 + 1e-3)
    narrow, *_, wide = cuts(serial, Machine(1, 8))
    assert (narrow.threads, wide.streams) == (1, 1)
    assert narrow.requests_per_s == pytest.approx(8 / 8e-3)
    assert wide.requests_per_s == pytest.approx(1 / 4.5e-3)


def test_weights_beyond_the_cache_are_bound_by_each_node_s_memory():
    large = replace(PROFILE, weights=10**9)
    cut = served(large, Machine(2, 8), 16, 1)
    near = 1e9 * 8 / NODE_BYTES_PER_S
    assert cut.requests_per_s == pytest.approx(8 / near + 8 / (near / REMOTE))
    assert cut.p99_s > cut.latency_s


def test_a_neighbour_slows_a_stream_down_as_it_did_where_it_was_measured():
    slowed = replace(PROFILE, beside_s=9e-3)
    assert served(slowed, Machine(1, 8), 8, 1).latency_s == pytest.approx(9e-3)
    assert served(slowed, Machine(1, 8), 1, 1).latency_s == pytest.approx(8e-3)


def test_streams_of_no_power_of_two_are_not_torn_between_nodes():
    assert served(PROFILE, Machine(2, 32), 20, 3).torn == 0
    assert served(PROFILE, Machine(2, 4), 1, 6).torn == 1
