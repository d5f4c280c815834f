"""Operators on strings, which run in NumPy around the kernels (``autotune/frame/frame.py``).

Meanings are those of ONNX's operators of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.frame.frame import Attributes, HostOperator

Array = NDArray[Any]


def constant(_inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """Strings of the model's own."""
    return [_strings(attributes["values"], attributes["shape"])]


def identity(inputs: Sequence[Any], _attributes: Attributes) -> list[Any]:
    """Its input."""
    return [inputs[0]]


def equal(inputs: Sequence[Any], _attributes: Attributes) -> list[Any]:
    """Return whether strings are equal; shapes broadcast."""
    return [np.asarray(inputs[0] == inputs[1], np.bool_)]


def string_concat(inputs: Sequence[Any], _attributes: Attributes) -> list[Any]:
    """One string behind the other; shapes broadcast."""
    return [np.asarray(inputs[0] + inputs[1], object)]


def regex_full_match(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """Return whether the whole of a string matches ``pattern``, of RE2's syntax, which is nearly Python's."""
    pattern = re.compile(attributes["pattern"])
    matches = [pattern.fullmatch(text) is not None for text in inputs[0].reshape(-1)]
    return [np.array(matches, np.bool_).reshape(inputs[0].shape)]


def string_normalizer(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """Strings of shape (c,) or (1, c) without ``stopwords``, in another case; one empty string if none is left."""
    x = inputs[0]
    sensitive = bool(attributes.get("is_case_sensitive", 0))
    stop = attributes.get("stopwords", [])
    stop = set(stop) if sensitive else {word.lower() for word in stop}
    kept = [text for text in x.reshape(-1) if (text if sensitive else text.lower()) not in stop]
    action = attributes.get("case_change_action", "NONE")
    if action != "NONE":
        kept = [text.lower() if action == "LOWER" else text.upper() for text in kept]
    kept = kept or [""]
    return [_strings(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))]


def string_split(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """The parts of every string, filled up with empty ones to the most parts, and how many each has."""
    x, delimiter = inputs[0], attributes.get("delimiter") or None
    most = int(attributes.get("maxsplit", -1))
    parts = [text.split(delimiter, most) if text else [] for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    filled = [word for words in parts for word in words + [""] * (width - len(words))]
    counts = np.array([len(words) for words in parts], np.int64)
    return [_strings(filled, (*x.shape, width)), counts.reshape(x.shape)]


def label_encoder(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """The value of every key in a table, ``default`` for keys that it lacks."""
    keys, values, default = attributes["keys"], attributes["values"], attributes["default"]
    table = dict(zip(keys, values, strict=True))
    # No comparison finds NaN, which may be a key.
    nan = next((value for key, value in table.items() if key != key), default)
    results = [table.get(key, nan if key != key else default) for key in inputs[0].reshape(-1).tolist()]
    if attributes["dtype"] == "object":
        return [_strings(results, inputs[0].shape)]
    return [np.array(results, attributes["dtype"]).reshape(inputs[0].shape)]


def one_hot_encoder(inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
    """One column per category, 1 where a string is that category.

    Raises:
        ValueError: for a string that is none, unless ``zeros`` allows it.
    """
    x, categories = inputs[0], attributes["categories"]
    if not attributes.get("zeros", 1) and (unknown := set(x.reshape(-1)) - set(categories)):
        raise ValueError(f"{sorted(unknown)[0]!r} is no category")
    return [(x[..., None] == np.array(categories, object)).astype(np.float32)]


def _strings(values: Sequence[str], shape: Sequence[int]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(tuple(shape))


STRING_OPERATORS: Mapping[str, HostOperator] = {
    "Constant": constant,
    "Identity": identity,
    "Equal": equal,
    "StringConcat": string_concat,
    "RegexFullMatch": regex_full_match,
    "StringNormalizer": string_normalizer,
    "StringSplit": string_split,
    "LabelEncoder": label_encoder,
    "OneHotEncoder": one_hot_encoder,
}
