"""Own processes load TVM without debug information, XGBoost without scikit-learn."""

import subprocess
import sys

import pytest

LEAN = "from autotune.host.lean_loading import leave_out_unused\nleave_out_unused()\n"


def printed(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.split()


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
