"""Objects with locks are renewed in the children of a fork, and only as long as they live."""

import gc
import os

from autotune.host.forks import life, renew_in_children


class Counted:
    def __init__(self):
        self.renewed = 0

    def renew(self):
        self.renewed += 1


def in_child(work):
    """What ``work`` returns in a child, a small number."""
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_children_renew_what_lives():
    kept, dropped = Counted(), Counted()
    for counted in (kept, dropped):
        renew_in_children(counted)
    before = life()
    del dropped
    gc.collect()
    assert in_child(lambda: kept.renewed) == 1
    assert in_child(lambda: in_child(lambda: kept.renewed)) == 2
    assert in_child(lambda: int(life() == before + 1)) == 1
    assert (kept.renewed, life()) == (0, before)
