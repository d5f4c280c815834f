"""Outputs that are an input or a weight, perhaps in another shape, become copies.

TVM takes a kernel that only copies for a reshape, which is no kernel. Sessions write outputs by kernels; a model with an
output that none writes, such as a decoder that passes its caches on, would run on TVM's virtual machine.
"""

from __future__ import annotations

from tvm import relax, te
from tvm.ir import GenericConst, IRModule

from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    leaves,
    mapped,
    operator_name,
    rebuilt_main,
    substituted,
    without_main,
)


def copy_outputs(module: IRModule) -> IRModule:
    """``module``, its kernels formed, with a kernel that makes each output of ``main``."""
    main = module["main"]
    copies = set(main.params)
    for binding in bindings_of(module):
        value = binding.value
        source = value.args[0] if operator_name(value) == "relax.reshape" else value
        if source in copies or isinstance(source, GenericConst):
            copies.add(binding.var)
    tuples = {binding.var: binding.value for binding in bindings_of(module) if isinstance(binding.value, relax.Tuple)}
    body = tuples.get(main.body.body, main.body.body)
    if not any(field in copies or isinstance(field, GenericConst) for field in leaves(body)):
        return module
    builder = relax.BlockBuilder(IRModule(without_main(module)))

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        return builder.emit(substituted(binding.value, values))

    def result(_: relax.Expr, values: Values) -> relax.Expr:
        def field(old: relax.Expr) -> relax.Expr:
            new = substituted(old, values)
            if old not in copies and not isinstance(old, GenericConst):
                return new
            return builder.emit_te(copied, new, primfunc_name_hint="copy")

        return mapped(body, field)

    return rebuilt_main(module, builder, make, result=result)


def copied(x: te.Tensor) -> te.Tensor:
    """The same values in memory of their own."""
    return te.compute(x.shape, lambda *i: x(*i), name="copy")
