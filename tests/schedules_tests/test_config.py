"""Configs as values: text and back, and values by name."""

from __future__ import annotations

import pytest

from schedules.config import Config
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"space":"s","knobs":[1]}', '{"space":"s","knobs":{"a":1.5}}', "{"])
def test_text_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Config.from_json(text)


def test_a_config_answers_by_name() -> None:
    config = Config("s/1", (("tile", (2, 4)), ("order", "rows"), ("unroll", 4)))
    assert (config["tile"], config.integer("unroll")) == ((2, 4), 4)
    with pytest.raises(UsageError, match="'order' of s/1 holds 'rows', not an int"):
        config.integer("order")
    with pytest.raises(KeyError, match="no knob 'width'"):
        _ = config["width"]


def test_a_config_survives_its_text() -> None:
    config = Config("s/1", (("tile", (2, 4)), ("order", "rows"), ("unroll", 4)))
    assert Config.from_json(config.to_json()) == config
    assert Config.from_json(config.to_json()).to_json() == config.to_json()
