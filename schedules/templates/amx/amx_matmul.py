"""A dense layer in AMX tiles (``amx_product.py``).

x (m, k)    weight (n/16, k/16Q, 16, 16, Q)    output (m, n)

for m/rows, n/(tn·16):          in parallel
    wide = x · weight           for the rows and tn·16 columns, in tiles
    epilogue
"""

from __future__ import annotations

from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.templates.amx.amx_ir import MOST_ROWS
from schedules.templates.amx.amx_product import WIDE, terms, tile_jobs, use_amx
from schedules.templates.common.splice import long
from schedules.templates.common.structure import Anchor, inline_epilogue
from schedules.templates.instructions.dots import multiplied


def stages(anchor: Anchor) -> tirx.PrimFunc:
    """The product of ``anchor`` as a function (x, weight, result)."""
    form = anchor.form
    assert form is not None
    rows, columns = anchor.spatial
    step_terms = terms(form)
    steps = anchor.reduction[0] * form.depth // step_terms
    x = te.placeholder(long(rows, steps * step_terms), form.data, name="data")
    weight = te.placeholder(
        long(columns // MOST_ROWS, steps, MOST_ROWS, MOST_ROWS, form.depth), form.weight, name="weight"
    )
    zero = tirx.IntImm("int64", 0)
    k, i = (te.reduce_axis((zero, *long(size)), name) for name, size in (("k", steps), ("i", step_terms)))
    wide = te.compute(
        long(columns // MOST_ROWS, rows, MOST_ROWS),
        lambda o, p, b: te.sum(
            multiplied(x[p, k * step_terms + i], weight[o, k, i // form.depth, b, i % form.depth], form), axis=[k, i]
        ),
        name=WIDE,
    )
    result = te.compute(long(rows, columns), lambda m, n: wide[n // MOST_ROWS, m, n % MOST_ROWS], name="result")
    return te.create_prim_func([x, weight, result])


def apply(sch: s_tir.Schedule, anchor: Anchor, config: Config) -> None:
    """Schedule ``stages`` and its epilogue in place."""
    form = anchor.form
    assert form is not None
    if anchor.epilogue:
        sch.compute_inline(sch.get_sblock("result"))
    tail = inline_epilogue(sch, anchor) if anchor.epilogue else sch.get_sblock("result")
    assert tail is not None
    job = tile_jobs(sch, tail, config)
    wide = sch.get_sblock(WIDE)
    sch.compute_at(wide, job, preserve_unit_loops=True)
    pitch = anchor.reduction[0] * form.depth * (4 // form.depth)
    shape = config.integer("rows"), config.integer("tn"), pitch
    use_amx(sch, sch.get_loops(wide)[1], job, shape, form)
