"""Errors of code that is not ours: TVM's passes, ONNX's reference implementation, ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schedules.errors import AutotuneError, first_line


class ThirdPartyError(Exception):
    """What third-party code raised, in one line; its cause is the error itself."""


@contextmanager
def third_party() -> Iterator[None]:
    """Turn every error of the block but our own into a ``ThirdPartyError``."""
    try:
        yield
    except AutotuneError:
        raise
    except Exception as error:  # such code raises any class of error, depending on the model that it is given
        raise ThirdPartyError(first_line(error)) from error
