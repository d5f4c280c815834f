"""A program with the plan's decisions applied: kernels scheduled, weights in the form the kernels want them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import IRModule

from autotune.importer.program import Program
from autotune.plan import Plan
from schedules.lower import load_program, lower, repack
from schedules.templates.structure import Repack


def specialise(program: Program, plan: Plan) -> Program:
    """``program`` with every kernel rewritten by its config; weights that no kernel uses any more are dropped.

    Raises:
        ScheduleError: if a config of the plan does not apply.
    """
    scheduled: dict[str, tvm.tirx.PrimFunc] = {}
    wanted: dict[str, dict[int, Repack]] = {}
    for task in program.tasks:
        func, config = load_program(program.programs[task.key]), plan.config(task.key)
        scheduled[task.key] = lower(func, config, plan.target).mod["main"]
        wanted[task.key] = repack(func, config)
    rewriter = _Rewriter(program, scheduled, wanted)
    return replace(program, module=rewriter.module(), weights=tuple(rewriter.weights))


class _Rewriter:
    """Rebuilds ``main``'s kernel calls around new weight parameters; every other binding stays as it is."""

    def __init__(
        self, program: Program, scheduled: dict[str, tvm.tirx.PrimFunc], wanted: dict[str, dict[int, Repack]]
    ) -> None:
        self._main = program.module["main"]
        self._kernels = program.kernels
        self._wanted = wanted
        self._inputs = int(self._main.attrs["num_input"])
        self._arrays = dict(zip(self._main.params[self._inputs :], program.weights, strict=True))
        self._made: dict[tuple[relax.Var, str], relax.Var] = {}
        self._params: list[relax.Var] = []
        self._builder = relax.BlockBuilder()
        self.weights: list[NDArray[Any]] = []
        # A symbol carries its function's signature, which repacking changes: the old symbols will not do.
        self._symbols = {
            name: self._builder.add_func(scheduled[task].with_attr("global_symbol", name), name)
            for name, task in program.kernels.items()
        }

    def module(self) -> IRModule:
        """The new module."""
        module = self._builder.get()
        module["main"] = self.main()
        return module

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
            return expr
        if str(getattr(expr.op, "name", "")) == "relax.call_tir":
            forms = self._wanted[self._kernels[expr.args[0].name_hint]]
            args = [self._symbols[expr.args[0].name_hint], self._argument(expr.args[1], forms), *expr.args[2:]]
        else:
            args = [self._argument(arg, {}) for arg in expr.args]
        return self._builder.normalize(relax.Call(expr.op, args, expr.attrs, expr.ty_args))

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
