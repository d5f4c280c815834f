"""A program with the plan's decisions applied: kernels called by name, weights repacked as the kernels read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from tvm import relax

from autotune.artifact.plan import Plan
from autotune.importer.program import Program
from autotune.measure.measurer import symbol_of
from schedules.lower import load_program, repack
from schedules.templates.common.structure import Repack


def apply_plan(program: Program, plan: Plan) -> Program:
    """``program`` with kernels called by ``symbol_of`` their task, and weights repacked as those kernels read them.

    Weights that no kernel reads are dropped.

    Raises:
        ScheduleError: if a config of the plan does not apply.
    """
    repacks = {
        task.key: repack(load_program(program.programs[task.key]), plan.config(task.key)) for task in program.tasks
    }
    rewriter = _Rewriter(program, repacks)
    main = rewriter.main()
    return replace(program, main=main, weights=tuple(rewriter.weights))


class _Rewriter:
    """Rebuilds ``main``'s kernel calls around new weight parameters; every other binding stays as it is.

    Args:
        repacks: task → (argument's number → how its kernel wants that weight).
    """

    def __init__(self, program: Program, repacks: dict[str, dict[int, Repack]]) -> None:
        self._main = program.main
        self._kernels = program.kernels
        self._repacks = repacks
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
        arguments = self._argument(expr.args[1], self._repacks[task])
        return self._builder.normalize(relax.op.call_dps_packed(symbol_of(task), arguments, list(expr.ty_args)))

    def _argument(self, arg: relax.Expr, repacks: dict[int, Repack]) -> relax.Expr:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._weight(field, repacks.get(index)) for index, field in enumerate(arg.fields)])
        return self._weight(arg, None)

    def _weight(self, arg: relax.Expr, packed: Repack | None) -> relax.Expr:
        if not isinstance(arg, relax.Var) or arg not in self._arrays:
            return arg
        key = (arg, packed.name if packed else "")
        if key not in self._made:
            array = packed.apply(self._arrays[arg]) if packed else self._arrays[arg]
            name = f"weight_{len(self.weights)}"
            self._made[key] = relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            self._params.append(self._made[key])
            self.weights.append(array)
        return self._made[key]
