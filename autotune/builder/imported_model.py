"""A model of a run as the importer leaves it: imported when it is first wanted, then passed on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from autotune.builder.lane_budget import for_threads
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.options import Options, Precision
from schedules.target import Target


class ImportedModel:
    """One ONNX file with the shapes and the precision of its options, imported once for each kind of target.

    It keeps the programs with their weights. All numbers of threads share an import: they differ in spaces only.
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self._options = path, options
        self._known: dict[Target, tuple[onnx.ModelProto, Program, int]] = {}

    def for_target(self, target: Target) -> tuple[onnx.ModelProto, Program]:
        """Return the checked model, and its program with the spaces of ``target``.

        Raises:
            ModelError, UsageError: as ``import_model``.
        """
        kind = replace(target, threads=1)
        if kind not in self._known:
            options = self._options
            precision, generates = Precision.parse(options.precision), options.generate is not None
            imported = import_model(self.path, options.inputs, target, precision=precision, generates=generates)
            self._known[kind] = (*imported, target.threads)
        model, program, threads = self._known[kind]
        return model, program if threads == target.threads else for_threads(program, target)
