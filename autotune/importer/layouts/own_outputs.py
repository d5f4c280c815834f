"""Outputs that are an input or a weight, perhaps in another shape, become copies.

TVM takes a kernel that only copies for a reshape, which is no kernel. Sessions write outputs by kernels; a decoder that
passes its caches on has outputs that none writes.
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import GenericConst, IRModule

from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    copied,
    leaves,
    mapped,
    operator_name,
    rebuilt_main,
    substituted,
    without_main,
)


def copy_outputs(module: IRModule) -> IRModule:
    """``module``, its kernels formed, with a kernel that makes each output of ``main``."""
    main, bindings = module["main"], bindings_of(module)
    sources = set(main.params)
    for binding in bindings:
        value = binding.value
        value = value.args[0] if operator_name(value) == "relax.reshape" else value
        if value in sources or isinstance(value, GenericConst):
            sources.add(binding.var)
    tuples = {binding.var: binding.value for binding in bindings if isinstance(binding.value, relax.Tuple)}
    outputs = tuples.get(main.body.body, main.body.body)
    if not any(output in sources or isinstance(output, GenericConst) for output in leaves(outputs)):
        return module
    builder = relax.BlockBuilder(IRModule(without_main(module)))

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        return builder.emit(substituted(binding.value, values))

    def result(_: relax.Expr, values: Values) -> relax.Expr:
        def output(old: relax.Expr) -> relax.Expr:
            new = substituted(old, values)
            return copied(builder, new) if old in sources or isinstance(old, GenericConst) else new

        return mapped(outputs, output)

    return rebuilt_main(module, builder, make, result=result)
