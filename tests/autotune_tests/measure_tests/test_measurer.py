"""Names of kernels, and where measurements come from."""

from autotune.measure.measurer import WORKER, Origin, symbol_of


def test_a_kernel_is_called_after_its_task():
    assert symbol_of("00ff") == "tune_00ff"


def test_provenance_names_a_worker_only_where_there_are_several():
    assert Origin("ada").provenance == {}
    assert Origin("ada", "ray 1").provenance == {WORKER: "ray 1"}
