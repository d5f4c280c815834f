"""A program with the plan's decisions applied: kernels by name, weights in the form the kernels want them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from tvm import relax
from tvm.ir import IRModule

from autotune.artifact.plan import Plan
from autotune.importer.program import Program
from autotune.measure.measurer import symbol_of
from schedules.lower import load_program, repack
from schedules.templates.common.structure import Repack


def specialise(program: Program, plan: Plan) -> Program:
    """``program`` with kernels called by ``symbol_of`` their task and weights as they want them.

    The module keeps only ``main``: kernels are compiled apart. Weights that no kernel uses any more are dropped.

    Raises:
        ScheduleError: if a config of the plan does not apply.
    """
    wanted = {
        task.key: repack(load_program(program.programs[task.key]), plan.config(task.key)) for task in program.tasks
    }
    rewriter = _Rewriter(program, wanted)
    main = rewriter.main()
    return replace(program, module=IRModule({"main": main}), weights=tuple(rewriter.weights))


class _Rewriter:
    """Rebuilds ``main``'s kernel calls around new weight parameters; every other binding stays as it is."""

    def __init__(self, program: Program, wanted: dict[str, dict[int, Repack]]) -> None:
        self._main = program.module["main"]
        self._kernels = program.kernels
        self._wanted = wanted
        self._inputs = int(self._main.attrs["num_input"])
        self._arrays = dict(zip(self._main.params[self._inputs :], program.weights, strict=True))
        self._made: dict[tuple[relax.Var, str], relax.Var] = {}
        self._params: list[relax.Var] = []
        self._builder = relax.BlockBuilder()
        self.weights: list[NDArray[Any]] = []

    def main(self) -> relax.Function:
        """The new function."""
        blocks = [
            type(block)([relax.VarBinding(b.var, self._call(b.value)) for b in block.bindings])
            for block in self._main.body.blocks
        ]
        body = relax.SeqExpr(blocks, self._main.body.body)
        params = [*self._main.params[: self._inputs], *self._params]
        return relax.Function(params, body, self._main.ret_ty, self._main.is_pure, self._main.attrs)

    def _call(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call):
            return self._argument(expr, {})  # an output may be a weight
        if str(getattr(expr.op, "name", "")) != "relax.call_tir":
            args = [self._argument(arg, {}) for arg in expr.args]
            return self._builder.normalize(relax.Call(expr.op, args, expr.attrs, expr.ty_args))
        task = self._kernels[expr.args[0].name_hint]
        arguments = self._argument(expr.args[1], self._wanted[task])
        return self._builder.normalize(relax.op.call_dps_packed(symbol_of(task), arguments, list(expr.ty_args)))

    def _argument(self, arg: relax.Expr, forms: dict[int, Repack]) -> relax.Expr:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._weight(field, forms.get(index)) for index, field in enumerate(arg.fields)])
        return self._weight(arg, None)

    def _weight(self, arg: relax.Expr, form: Repack | None) -> relax.Expr:
        if not isinstance(arg, relax.Var) or arg not in self._arrays:
            return arg
        key = (arg, form.name if form else "")
        if key not in self._made:
            array = form.apply(self._arrays[arg]) if form else self._arrays[arg]
            name = f"weight_{len(self.weights)}"
            self._made[key] = relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            self._params.append(self._made[key])
            self.weights.append(array)
        return self._made[key]
