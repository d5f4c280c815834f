"""Own processes load onnxslim without sympy, TVM without debug information, XGBoost without scikit-learn."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

IMPORT = """
import sys
from pathlib import Path
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
_, program = import_model(Path(sys.argv[1]), {}, host_target(2))
"""
LEAN = "from autotune.host.lean_loading import leave_out_unused\nleave_out_unused()\n"


@pytest.fixture
def model(tmp_path):
    """relu(x + 0), whose addition only onnxslim drops."""
    value = onnx.helper.make_tensor_value_info
    zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    nodes = [onnx.helper.make_node("Add", ["x", "zero"], ["y"]), onnx.helper.make_node("Relu", ["y"], ["z"])]
    ends = [[value(name, onnx.TensorProto.FLOAT, [4, 8])] for name in "xz"]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", *ends, [zero])), path)
    return path


def printed(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "onnxslim failed" not in ran.stderr
    return ran.stdout.split()


def test_models_are_simplified_as_before_without_sympy(model):
    keys = "print('sympy' in sys.modules, *(task.key for task in program.tasks))"
    lean = printed(LEAN + IMPORT + keys, model)
    assert lean == ["False", *printed(IMPORT + keys, model)[1:]]


def test_a_command_loads_no_sympy(model):
    code = "import sys\nfrom autotune.__main__ import main\nmain()\nprint('sympy' in sys.modules)"
    assert printed(code, "tasks", model)[-1] == "False"


def test_the_library_leaves_onnxslim_whole(model):
    assert printed(IMPORT + "import onnxslim.core\nprint(onnxslim.core.SymbolicShapeInference is None)", model) == [
        "False"
    ]


FAILING = """
import resource, sys
before = resource.getrlimit(resource.RLIMIT_NOFILE)
import tvm
assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
try:
    tvm.ir.Op.get("no.such.operator")
except Exception as error:
    print(error)
else:
    print("nothing failed")
print(any("_BeforeTvm" in type(finder).__name__ for finder in sys.meta_path))
"""


def test_errors_of_tvm_say_the_same():
    lean = printed(LEAN + FAILING)
    assert lean == printed(FAILING)
    assert "no.such.operator" in " ".join(lean)
    assert lean[-1] == "False"


def test_without_tvm_its_libraries_are_not_loaded():
    assert printed(LEAN + "import sys, json\nprint('tvm_ffi' in sys.modules)") == ["False"]


BOOSTED = """
import sys
import numpy as np
from costmodels.boosted import Boosted
x = np.random.default_rng(0).random((64, 3))
model = Boosted(0).fit(x, x.sum(axis=1))
print("scipy.stats" in sys.modules, *model.predict(x[:4]).mean)
from sklearn.base import BaseEstimator
from skopt.learning import ExtraTreesRegressor
print(BaseEstimator in ExtraTreesRegressor.mro())
"""


def test_boosted_trees_are_the_same_without_scikit_learn_which_others_find():
    lean, whole = printed(LEAN + BOOSTED), printed(BOOSTED)
    assert (lean[0], whole[0]) == ("False", "True")
    assert lean[1:] == whole[1:]
    assert lean[-1] == "True"


def test_the_library_leaves_xgboost_whole():
    code = "import costmodels.boosted\nimport xgboost\nprint(xgboost.compat.SKLEARN_INSTALLED)"
    assert printed(code) == ["True"]


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (["replay", "t.npz", "--searcher", "adaptive,mine:Nearby"], "True"),
        (["run", "m.onnx", "--cost-model=my.models:Own"], "True"),
        (["run", "m.onnx", "--lanes", "cpu,cuda:0", "--input", "x:1x3", "--precision=bf16:0,3"], "False"),
    ],
)
def test_strategies_of_the_user_s_own_have_all_of_xgboost(arguments, whole):
    lean = "import sys\nfrom autotune.host.lean_loading import leave_out_unused\nleave_out_unused(sys.argv[1:])\n"
    code = "import costmodels.boosted\nimport xgboost\nprint(xgboost.compat.SKLEARN_INSTALLED)"
    assert printed(lean + code, *arguments) == [whole]


def test_nothing_that_starts_a_run_loads_scipy_s_statistics():
    assert printed(LEAN + "import sys, autotune.tuning.tune\nprint('scipy.stats' in sys.modules)") == ["False"]
