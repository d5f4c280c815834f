"""``tune replay``: strategies compared on recorded traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import arguments as opt
from autotune.cli.reply import Reply, table
from schedules.errors import UsageError


def _names(kind: str, text: str | None) -> list[str]:
    """``a,b`` → known names; ``all`` → all of them."""
    if text is None:
        return []
    known = opt.strategies()[kind]
    if text == "all":
        return list(known)
    return [opt.choose_strategy(kind, name) for name in opt.split_names(text)]


def _list_option(kind: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{kind.replace(' ', '-')}", metavar="NAMES", help=f"Compare these {kind}s: names with commas, or all."
    )
    return option


def replay(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE…", help="Trace files (.npz).", show_default=False)],
    searcher: Annotated[str | None, _list_option("searcher")] = None,
    cost_model: Annotated[str | None, _list_option("cost model")] = None,
    evaluator: Annotated[str | None, _list_option("evaluator")] = None,
    allocator: Annotated[str | None, _list_option("allocator")] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds of every strategy on every trace.")] = 30,
    seed: Annotated[int, typer.Option(metavar="N", help="The first of them.")] = 0,
    near: Annotated[str, typer.Option(metavar="5%", help="Near enough to the best.")] = "5%",
    trials: Annotated[int, typer.Option(metavar="N", help="Most trials of a task.")] = 192,
    warm: Annotated[
        bool, typer.Option("--warm", help="Searchers know what other tasks in the given files have shown.")
    ] = False,
    blind: Annotated[bool, typer.Option("--blind", help="Searchers do not get the templates' first guesses.")] = False,
    courses: Annotated[
        str, typer.Option(metavar="SEARCHER", help="The searcher under the allocators' comparison.")
    ] = "adaptive",
    processes: Annotated[int, typer.Option(metavar="N", help="Worker processes.")] = 2,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the comparison as a page.")] = None,
    as_json: opt.Json = False,
) -> Reply:
    """Compare strategies offline: every build and run is charged as it was recorded.

    Files of one task serve searchers, cost models and evaluators; files of a model serve allocators.
    """
    from autotune.replay.comparison import Replay, ReplayRules
    from autotune.replay.table_plots import write_page
    from autotune.replay.tables import allocator_table, cost_model_table, evaluator_table, searcher_table

    wanted = {
        kind: _names(kind, text)
        for kind, text in (
            ("searcher", searcher), ("cost model", cost_model), ("evaluator", evaluator), ("allocator", allocator)
        )
    }  # fmt: skip
    if not any(wanted.values()):
        wanted["searcher"] = ["adaptive", "autotvm", "random"]
    if seeds < 1 or trials < 1 or processes < 1:
        raise UsageError(f"--seeds {seeds}, --trials {trials} and --processes {processes} must be at least 1")
    rules = ReplayRules(
        seeds,
        seed,
        1.0 + opt.parse_share(near, "--near"),
        trials,
        warm,
        blind,
        searcher=opt.choose_strategy("searcher", courses),
        processes=processes,
    )
    board = Replay(traces, rules)
    makers = {
        "evaluator": evaluator_table,
        "cost model": cost_model_table,
        "searcher": searcher_table,
        "allocator": allocator_table,
    }
    found = [make(board, wanted[kind]) for kind, make in makers.items() if wanted[kind]]
    if plot is not None:
        write_page(plot, found)
    lines = [line for one in found for line in ("", one.title, *table(one.heads, one.rows))]
    data = {
        "traces": [file.name for file in board.files],
        "machines": sorted({file.machine for file in board.files}),
        "seeds": seeds,
        "tables": {one.title: one.data for one in found},
    }
    return Reply(lines[1:], data, as_json)
