"""Names of C libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.exchange.c_names import MOST_NAME, default_name, unusable


@pytest.mark.parametrize(
    ("artifact", "name"),
    [
        ("resnet-18.tuned", "resnet_18"),
        ("18.tuned", "model_18"),
        ("int.tuned", "model_int"),
        ("tune.tuned", "model_tune"),
    ],
)
def test_an_artifact_names_its_library(artifact: str, name: str) -> None:
    assert default_name(Path("/somewhere") / artifact) == name
    assert unusable(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("two words", "it cannot be the name of C functions"),
        ("größe", "it cannot be the name of C functions"),
        ("n" * (MOST_NAME + 1), f"it has more than {MOST_NAME} characters"),
        ("while", "it is a word of the language C"),
        ("Tune_own", "functions and constants of the library's core begin with it"),
        ("m", "the system has a library libm"),
    ],
)
def test_what_no_library_may_be_called(name: str, why: str) -> None:
    assert unusable(name) == why
