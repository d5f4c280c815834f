"""Which engine answers: the faster one of live requests, per range of sizes."""

import pytest

from autotune.interface import OpenSpec
from autotune.runtime.adaptive.routes import KERNELS, REFERENCE, TIMED, Routes, rounded

INPUTS = (OpenSpec("ids", ("batch", "length"), "int64"), OpenSpec("mask", ("batch", "length"), "int64"))


def shapes(batch, length):
    return ((batch, length), (batch, length))


def test_sizes_are_rounded_up_to_two_steps_an_octave():
    assert [rounded(size) for size in (1, 2, 3, 4, 5, 6, 7, 13, 24, 25, 33, 100, 512)] == [
        *(1, 2, 3, 4, 6, 6, 8, 16, 24, 32, 48, 128, 512)
    ]
    for size in range(1, 2000):
        assert size <= rounded(size) < 2 * size
        assert rounded(rounded(size)) == rounded(size)


def test_a_size_with_one_name_counts_once_and_one_without_by_itself():
    route, elements = Routes(INPUTS).of(shapes(3, 40))
    assert (route.sizes, elements) == ((3, 48), 120)
    route, elements = Routes((OpenSpec("x", ("?", 3, "?"), "float32"),)).of(((5, 3, 7),))
    assert (route.sizes, elements) == ((6, 8), 35)
    assert Routes((OpenSpec("x", (2, 3), "float32"),)).of(((2, 3),))[0].sizes == ()


def serve(routes, seconds, count):
    """``count`` requests whose engines take so many seconds; the engines that were asked."""
    asked = []
    for _ in range(count):
        route, elements = routes.of(shapes(1, 16))
        asked.append(routes.turn(route))
        routes.add(route, asked[-1], seconds[asked[-1]], elements)
    return asked


@pytest.mark.parametrize(("kernels_s", "engine"), [(1.0, KERNELS), (3.0, REFERENCE), (1.99, REFERENCE)])
def test_the_faster_engine_is_chosen_when_both_were_timed(kernels_s, engine):
    routes = Routes(INPUTS)
    asked = serve(routes, {KERNELS: kernels_s, REFERENCE: 2.0}, 2 * TIMED + 2)
    assert asked.count(KERNELS) == asked.count(REFERENCE) == TIMED + 1
    route, _ = routes.of(shapes(1, 13))
    assert (route.engine, route.gain) == (engine, pytest.approx(2.0 / kernels_s))
    assert serve(routes, {KERNELS: 1.0, REFERENCE: 1.0}, 3) == [engine] * 3
    assert routes.of(shapes(1, 17))[0].engine is None


def test_the_first_request_of_an_engine_is_not_timed():
    routes = Routes(INPUTS)
    serve(routes, {KERNELS: 1000.0, REFERENCE: 2.0}, 1)
    serve(routes, {KERNELS: 1.0, REFERENCE: 2.0}, 2 * TIMED + 1)
    assert routes.of(shapes(1, 16))[0].engine == KERNELS


def test_other_kernels_are_compared_again():
    routes = Routes(INPUTS)
    serve(routes, {KERNELS: 1.0, REFERENCE: 2.0}, 2 * TIMED + 2)
    routes.begin_again()
    route, _ = routes.of(shapes(1, 16))
    assert (route.engine, route.is_checked, route.gain) == (None, False, None)
    assert route.requests == {KERNELS: TIMED + 1, REFERENCE: TIMED + 1}


def test_choices_by_times_are_timed_again_and_others_stay():
    routes = Routes(INPUTS)
    serve(routes, {KERNELS: 3.0, REFERENCE: 2.0}, 2 * TIMED + 2)
    wrong, _ = routes.of(shapes(4, 4))
    routes.choose(wrong, REFERENCE)
    routes.time_again()
    assert routes.of(shapes(4, 4))[0].engine == REFERENCE
    asked = serve(routes, {KERNELS: 1.0, REFERENCE: 2.0}, 2 * TIMED + 2)
    assert asked.count(KERNELS) == TIMED + 1
    assert routes.of(shapes(1, 16))[0].engine == KERNELS


def test_choices_are_kept_and_what_is_no_choice_is_left_out():
    routes = Routes(INPUTS)
    serve(routes, {KERNELS: 1.0, REFERENCE: 2.0}, 2 * TIMED + 2)
    other = Routes(INPUTS)
    other.restore(routes.to_data())
    route, _ = other.of(shapes(1, 16))
    assert (route.engine, route.gain, route.is_checked) == (KERNELS, pytest.approx(2.0), True)
    for damaged in (None, {}, [1], [[[1, 16], "gpu", 1.0]], [[["a"], KERNELS, 1.0]], [[[1, 16], KERNELS, "2"]]):
        other = Routes(INPUTS)
        other.restore(damaged)
        assert other.all() == []


def test_the_child_of_a_fork_compares_what_a_thread_of_its_parent_began_to_compare():
    routes = Routes(INPUTS)
    begun, _ = routes.of(shapes(1, 16))
    assert routes.claim(begun)
    chosen, _ = routes.of(shapes(2, 16))
    assert routes.claim(chosen)
    routes.choose(chosen, REFERENCE)
    routes._lock.acquire()  # as by a thread that the child does not have
    routes.renew()
    assert routes.claim(begun)
    assert not routes.claim(chosen)
    assert not routes.add(begun, REFERENCE, 1.0, 1)
