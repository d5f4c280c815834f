"""Executors hand on to their parts what they do not do themselves."""

import numpy as np

from autotune.backends.executor import Executor


class Part(Executor):
    """Notes what it is told."""

    def __init__(self, survives):
        self.told, self._survives = [], survives

    @property
    def survives_fork(self):
        return self._survives

    def run(self, arrays):
        self.told.append("run")
        return [array + 1 for array in arrays]

    def halt(self):
        self.told.append("halt")

    def resume(self):
        self.told.append("resume")


class Whole(Executor):
    """Runs its parts one after the other."""

    def __init__(self, *parts):
        self._parts = parts

    @property
    def parts(self):
        return self._parts

    def run(self, arrays):
        for part in self.parts:
            arrays = part.run(arrays)
        return list(arrays)


def test_live_rows_are_no_more_than_a_hint():
    (output,) = Whole(Part(True), Part(True)).run_live([np.zeros(3)], [2])
    assert output.tolist() == [2.0, 2.0, 2.0]


def test_parts_are_cancelled_and_go_on():
    parts = Part(True), Part(True)
    Whole(*parts).cancel()
    assert [part.told for part in parts] == [["halt", "resume"]] * 2


def test_a_whole_survives_a_fork_if_all_parts_do():
    assert Whole(Part(True), Part(True)).survives_fork
    assert not Whole(Part(True), Part(False)).survives_fork
    assert not Whole().survives_fork


def test_several_runs_are_made_one_by_one():
    part = Part(True)
    one, two = part.run_rows([np.arange(6.0), np.arange(12.0).reshape(6, 2)], 3)
    assert part.told == ["run"] * 3
    assert one.tolist() == (np.arange(6.0) + 1).tolist()
    assert two.tolist() == (np.arange(12.0).reshape(6, 2) + 1).tolist()
