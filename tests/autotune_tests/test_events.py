"""Observers of events."""

from autotune.events import PhaseBegan, everyone, ignore


def test_observers_get_every_event_in_order():
    heard = []
    observe = everyone(lambda event: heard.append(("a", event)), ignore, lambda event: heard.append(("b", event)))
    event = PhaseBegan("import")
    observe(event)
    assert heard == [("a", event), ("b", event)]
