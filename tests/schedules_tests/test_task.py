"""Tasks check themselves."""

from __future__ import annotations

import dataclasses

import pytest

from schedules.task import Task
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"dtypes": ("float32",)}, {"weight": 0}, {"flop": -1}, {"bytes": -1}], ids=str
)
def test_malformed_tasks_are_refused(wrong: dict[str, object]) -> None:
    task = Task("k", "n", "conv2d", "conv2d", ((1,), (1,)), ("float32", "float32"), constants=(), flop=1, bytes=8)
    with pytest.raises(UsageError, match="malformed task"):
        dataclasses.replace(task, **wrong)
