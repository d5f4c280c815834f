"""Libraries that TVM and XGBoost load and this program never uses, left out of its own processes.

A caller of the Python API may use all of both, so nothing is left out of a process that only imports the library.
"""

from __future__ import annotations

import re
import resource
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

XGBOOST, SKLEARN = "xgboost", "sklearn"
"""XGBoost loads scikit-learn, and that most of SciPy, for classes of that interface: 1.0 of the 1.5 s that loading it
takes on a Zen 3. Without scikit-learn it does without, and trains the same."""


OWN_STRATEGY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""A searcher or cost model of the user's own (``schedules/vocabulary/choices.py``), which may use all of XGBoost."""


def leave_out_unused(arguments: Sequence[str] = ()) -> None:
    """For a process of this program's own, before it loads TVM and XGBoost.

    Args:
        arguments: of the command, if it is one.
    """
    if "tvm" not in sys.modules:
        sys.meta_path.insert(0, _BeforeTvm())
    names = (name for argument in arguments for name in re.split("[,=]", argument))
    if not any(map(OWN_STRATEGY.fullmatch, names)) and not {XGBOOST, SKLEARN} & set(sys.modules):
        sys.meta_path.insert(0, _BeforeXgboost())


class _BeforeTvm:
    """Called when TVM is to be loaded: its errors then come without the names of its C++ functions.

    TVM finds out by errors what it does without, already while it is loaded. At the first one it reads the debug
    information of the program and of the libraries that are loaded by then. Of a Python built with debug information,
    as built from source, that takes 0.4 s on a Zen 3. It is not tried again where no file could be opened.
    """

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """None: others find it."""
        if name == "tvm":
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]  # the old list is being walked
            if threading.active_count() == 1:  # another thread may need files
                _fail_without_files()
        return None


def _fail_without_files() -> None:
    import tvm_ffi  # takes 0.1 s, which commands without TVM need not wait for

    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with suppress(ValueError):
            tvm_ffi.dtype("no type")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _BeforeXgboost:
    """Called when XGBoost is to be loaded, which then finds no scikit-learn; who wants that later does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """XGBoost's own; None for other modules."""
        if name != XGBOOST:
            return None
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]  # the old list is being walked
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and SKLEARN not in sys.modules:
            spec.loader = _WithoutSklearn(spec.loader)
        return spec


class _WithoutSklearn(Loader):
    """Loads a module as ``loader`` does, to which scikit-learn does not exist meanwhile."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Work like ``loader``."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Work like ``loader``."""
        sys.modules[SKLEARN] = None  # type: ignore[assignment]  # as Python's documentation has it: not to be found
        try:
            self._loader.exec_module(module)
        finally:
            del sys.modules[SKLEARN]
