from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info

from costmodels.single_thread import single_thread


@single_thread
def threads_inside(product: float) -> tuple[float, list[int]]:
    """As decorated functions see it."""
    return product, [pool["num_threads"] for pool in threadpool_info()]


def test_one_thread_inside_and_as_before_afterwards() -> None:
    matrix = np.eye(8) @ np.eye(8)
    before = [pool["num_threads"] for pool in threadpool_info()]
    value, inside = threads_inside(float(matrix.sum()))
    assert value == 8.0
    assert inside == [1] * len(inside) != []
    assert [pool["num_threads"] for pool in threadpool_info()][: len(before)] == before
    assert threads_inside.__doc__ == "As decorated functions see it."
