"""The loop order of every product: an anchor and a config's knobs → a ``Nest``.

Knobs may be the columns of a space: the extents of ``…_loops`` are then (n,) arrays, one number per config.

    conv2d   parallel n, o/to, oh/rows: [chunks of ci:] rows/th: ow/tw: ci, kh, kw, i/unroll: unroll · th · tw · to: b
    matmul   parallel n/(tn·b), m/rows: chunks of k: rows/tm: chunk/unroll: unroll · tm · tn: b
    windows  parallel n, c, oh/rows: rows: ow/tw: kh, kw: tw: b

The knob ``outer`` decides whether consecutive jobs share weights (0) or data (1). The knob ``parts``, which only spaces
for many threads have, puts a loop over parts of ow right inside the parallel loop over rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from schedules.templates.common.prefetch import FEWEST_TILES, OFTEN
from schedules.templates.common.register_tile import tile_order
from schedules.templates.common.structure import Anchor, divisors
from schedules.templates.nests.loop_nest import BEFORE, EARLIER, IN_JOBS, Loop, Nest, Role

IMAGE = ("n", "o", "oh", "ow", "b")
CONV2D_AXES = (*IMAGE, "ci", "kh", "kw", "i", "q")
WINDOW_AXES = (*IMAGE, "kh", "kw", "q")
MATMUL_AXES = ("m", "n", "k", "q")

Knobs = Mapping[str, Any]


def _pair(anchor: Anchor) -> int:
    """Rows of numbers that one instruction multiplies."""
    return 1 if anchor.form is None else anchor.form.rows


def _padding(anchor: Anchor, knobs: Knobs) -> str:
    return "" if not anchor.padded else IN_JOBS if knobs["pad"] else BEFORE


def conv2d_loops(anchor: Anchor, knobs: Knobs) -> dict[str, Loop]:
    """Return the loops of a direct convolution by name: an axis, then o (outer), m (middle) or i (inner)."""
    batch, blocks, height, width, lanes = anchor.spatial
    depth, kh, kw, inner, *quad = anchor.reduction
    to, th, tw, rows, unroll, chunk = (knobs[name] for name in ("to", "th", "tw", "rows", "unroll", "depth"))
    span, pair, across = int(anchor.geometry.get("span", 1)), _pair(anchor), knobs.get("parts", 1)
    return {
        "n": Loop("n", batch, Role.JOB),
        "oo": Loop("o", blocks // to, Role.JOB),
        "oi": Loop("o", to, Role.REGISTER),
        "oho": Loop("oh", height // rows, Role.JOB),
        "ohm": Loop("oh", rows // th, Role.TILE),
        "ohi": Loop("oh", th, Role.REGISTER),
        "owj": Loop("ow", across, Role.JOB),
        "owo": Loop("ow", -(-width // (across * tw)), Role.TILE),
        "owi": Loop("ow", tw // pair, Role.REGISTER),
        "pair": Loop("ow", pair, Role.PAIR),
        "b": Loop("b", lanes, Role.LANES),
        "cio": Loop("ci", depth // chunk if span == 1 else span, Role.CHUNK if span == 1 else Role.SUM),
        "cii": Loop("ci", chunk // span, Role.SUM),
        "kh": Loop("kh", kh, Role.SUM),
        "kw": Loop("kw", kw, Role.SUM),
        "io": Loop("i", inner // unroll, Role.SUM),
        "ii": Loop("i", unroll, Role.STEP),
        **({"q": Loop("q", quad[0], Role.LANES)} if quad else {}),
    }


def conv2d_nest(anchor: Anchor, knobs: Knobs) -> Nest:
    """Return the nest of a direct convolution (``cpu/conv2d.py``)."""
    loop = conv2d_loops(anchor, knobs)
    rows = ("oho", "owj") if loop["owj"].extent > 1 else ("oho",)
    jobs = ("n", *rows, "oo") if knobs["outer"] else ("n", "oo", *rows)
    spanned, cut = "span" in anchor.geometry, loop["cio"].extent > 1 and "span" not in anchor.geometry
    parts = ("cio", "ohm", "owo") if cut else ("ohm", "owo", *(("cio",) if spanned else ()))
    pixels = loop["ohi"].extent * loop["owi"].extent
    tile = tile_order(("oi", loop["oi"].extent), ("ohi", "owi"), pixels)
    pair = ("pair",) if loop["pair"].extent > 1 else ()
    order = (*jobs, *parts, "cii", "kh", "kw", "io", "ii", *tile, *pair, "b", *(("q",) if "q" in loop else ()))
    axes = CONV2D_AXES[: len(anchor.spatial) + len(anchor.reduction)]
    return Nest(
        anchor,
        axes,
        tuple(loop[name] for name in order),
        weight_axis="o",
        padding=_padding(anchor, knobs),
        prefetches=not spanned,
        own_sums=True,
    )


def window_nest(anchor: Anchor, knobs: Knobs, written_out: tuple[str, ...]) -> Nest:
    """Return the nest of a depthwise convolution or a pool; the window's axes ``written_out`` have no loop."""
    batch, blocks, height, width, lanes = anchor.spatial
    kh, kw, *quad = anchor.reduction
    rows, tw, across = knobs["rows"], knobs["tw"], knobs.get("parts", 1)
    taps = {name: Role.STEP if name in written_out else Role.SUM for name in ("kh", "kw")}
    loops = (
        Loop("n", batch, Role.JOB),
        Loop("o", blocks, Role.JOB),
        Loop("oh", height // rows, Role.JOB),
        *([Loop("ow", across, Role.JOB)] if across > 1 else []),
        Loop("oh", rows, Role.TILE),
        Loop("ow", width // (across * tw), Role.TILE),
        Loop("kh", kh, taps["kh"]),
        Loop("kw", kw, taps["kw"]),
        Loop("ow", tw, Role.REGISTER),
        Loop("b", lanes, Role.LANES),
        *(Loop("q", size, Role.LANES) for size in quad),
    )
    return Nest(anchor, WINDOW_AXES[: 7 + len(quad)], loops, padding=_padding(anchor, knobs))


def matmul_loops(anchor: Anchor, knobs: Knobs, lanes: int) -> dict[str, Loop]:
    """Return the loops of a matrix product by name, as ``conv2d_loops`` does."""
    (m, n), (k, *quad) = anchor.spatial, anchor.reduction
    tm, tn, rows, unroll, chunk = (knobs[name] for name in ("tm", "tn", "rows", "unroll", "depth"))
    pair = _pair(anchor)
    return {
        "mo": Loop("m", m // rows, Role.JOB),
        "mm": Loop("m", -(-rows // tm), Role.TILE),
        "mi": Loop("m", tm // pair, Role.REGISTER),
        "pair": Loop("m", pair, Role.PAIR),
        "no": Loop("n", n // lanes // tn, Role.JOB),
        "ni": Loop("n", tn, Role.REGISTER),
        "b": Loop("n", lanes, Role.LANES),
        "kc": Loop("k", k // chunk, Role.CHUNK),
        "ko": Loop("k", chunk // unroll, Role.SUM),
        "ki": Loop("k", unroll, Role.STEP),
        **({"q": Loop("q", quad[0], Role.LANES)} if quad else {}),
    }


def matmul_nest(anchor: Anchor, knobs: Knobs, lanes: int, bytes_ahead: int) -> Nest:
    """Return the nest of a product of a matrix and packed weights (``cpu/matmul.py``).

    Args:
        lanes: columns of one vector of weights.
        bytes_ahead: distance at which a product of one row prefetches.
    """
    loop = matmul_loops(anchor, knobs, lanes)
    jobs = ("mo", "no") if knobs["outer"] else ("no", "mo")
    parts = ("kc", "mm") if loop["kc"].extent > 1 else ("mm", "kc")
    pair = ("pair",) if loop["pair"].extent > 1 else ()
    order = (*jobs, *parts, "ko", "ki", "mi", "ni", *pair, "b", *(("q",) if "q" in loop else ()))
    vector = anchor.spatial[0] == 1
    nest = Nest(
        anchor,
        MATMUL_AXES[: 2 + len(anchor.reduction)],
        tuple(loop[name] for name in order),
        weight_axis="n",
        last_tile=EARLIER,
        bytes_ahead=bytes_ahead if vector else 0,
        prefetches=True,
        own_sums=vector,
    )
    return _with_seldom_prefetches(nest)


def _with_seldom_prefetches(nest: Nest) -> Nest:
    """Return ``nest`` with one prefetch in several steps, if one per step would read beyond the panel."""
    (steps,), (unrolled,) = nest.of(Role.SUM), nest.of(Role.STEP)
    share = nest.vectors * unrolled.extent / nest.tiles / nest.streams
    if share >= OFTEN or nest.tiles < FEWEST_TILES or not nest.anchor.epilogue:
        return nest
    between = next((d for d in divisors(steps.extent) if d * share >= OFTEN), 0)
    if not between:
        return nest
    split = (replace(steps, extent=steps.extent // between), replace(steps, extent=between))
    loops = [part for loop in nest.loops for part in (split if loop is steps else (loop,))]
    return replace(nest, loops=tuple(loops))
