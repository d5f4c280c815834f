"""Clocks of simulated devices."""

from tests.simulated.clock import Clock, ManualClock


def test_nobody_is_early():
    clock = Clock()
    moment = clock.now() + 2e-3
    clock.wait_until(moment)
    assert clock.now() >= moment
    clock.wait_until(moment - 1.0)


def test_a_manual_clock_goes_on_only_while_somebody_waits():
    clock = ManualClock()
    clock.wait_until(3.0)
    clock.wait_until(2.0)
    assert clock.now() == 3.0
