"""``tune replay``: strategies compared on recorded traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import arguments as opt
from autotune.cli.parsing import parse_share, parse_weights, split_names
from autotune.cli.reply import Reply, table
from schedules.vocabulary.errors import UsageError

replay_app = typer.Typer()

USUAL = "adaptive,autotvm,random"
"""Searchers that are compared where nothing is named."""


NEAR = "5%,2%,1%,0.5%"
"""Shares of the best that are told. Convention."""


def _list_option(kind: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{kind.replace(' ', '-')}", metavar="NAMES", help=f"Compare these {kind}s: names with commas, or all."
    )
    return option


@dataclass(frozen=True)
class ReplayRequest:
    """The arguments and options of ``tune replay``."""

    traces: Annotated[list[Path], typer.Argument(metavar="TRACE…", help="Trace files (.npz).", show_default=False)]
    searcher: Annotated[str | None, _list_option("searcher")] = None
    cost_model: Annotated[str | None, _list_option("cost model")] = None
    evaluator: Annotated[str | None, _list_option("evaluator")] = None
    allocator: Annotated[str | None, _list_option("allocator")] = None
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds of every strategy on every trace.")] = 30
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The first of them.")] = 0
    near: Annotated[str, typer.Option(metavar="5%,2%", help="Near enough to the best: shares with commas.")] = NEAR
    trials: Annotated[int, typer.Option(metavar="N", help="Most trials of a task.")] = 192
    warm: Annotated[
        bool, typer.Option("--warm", help="Searchers know what other tasks in the given files have shown.")
    ] = False
    guesses: Annotated[
        str,
        typer.Option(
            metavar="all|template|none",
            help="Every searcher begins with a run's first guesses, the templates' own alone, or none.",
        ),
    ] = "all"
    portfolio: Annotated[
        bool, typer.Option("--portfolio", help="Allocators tune the models of all files under one budget.")
    ] = False
    weight: opt.Weights = None
    courses: Annotated[str, typer.Option(metavar="SEARCHER", help="The searcher under the allocators' comparison.")] = (
        "adaptive"
    )
    processes: Annotated[int, typer.Option(metavar="N", help="Worker processes.")] = 2
    plot: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the comparison as a page.")] = None
    as_json: opt.Json = False

    def strategies(self) -> dict[str, list[str]]:
        """Kind of strategy → names to compare.

        Raises:
            UsageError: for an unknown name.
        """
        asked = {
            "evaluator": self.evaluator,
            "cost model": self.cost_model,
            "searcher": self.searcher,
            "allocator": self.allocator,
        }
        if not any(asked.values()):
            asked["searcher"] = USUAL
        return {kind: _names(kind, text) for kind, text in asked.items() if text}


def _names(kind: str, text: str) -> list[str]:
    """``a,b`` → known names; ``all`` → all of them."""
    if text == "all":
        return list(opt.strategies(kind))
    return [opt.choose_strategy(kind, name) for name in split_names(text)]


@replay_app.command(epilog="Example: tune replay research/traces/conv3x3.npz --searcher adaptive,random --seeds 30")
@opt.taking(ReplayRequest)
def replay(request: ReplayRequest) -> Reply:
    """Compare strategies on recorded kernels. Every build and run costs what it cost when it was recorded.

    Every searcher has the same first guesses, and every allocator the same searches of tasks. Files of one task serve
    searchers, cost models and evaluators; files of a model serve allocators.
    """
    from autotune.contrib.replay.comparison import GUESSES, Replay, ReplayRules
    from autotune.contrib.replay.table_plots import write_page
    from autotune.contrib.replay.tables import allocator_table, cost_model_table, evaluator_table, searcher_table

    wanted = request.strategies()
    if request.seeds < 1 or request.trials < 1 or request.processes < 1:
        raise UsageError(
            f"--seeds {request.seeds}, --trials {request.trials} and --processes {request.processes} must be at least 1"
        )
    if request.guesses not in GUESSES:
        raise UsageError(f"--guesses {request.guesses}: unknown; choose one of {', '.join(GUESSES)}")
    rules = ReplayRules(
        request.seeds,
        request.seed,
        tuple(1.0 + parse_share(share, "--near") for share in split_names(request.near)),
        request.trials,
        request.warm,
        request.guesses,
        request.portfolio,
        parse_weights(request.weight or ()),
        searcher=opt.choose_strategy("searcher", request.courses, "--courses"),
        processes=request.processes,
    )
    board = Replay(request.traces, rules)
    makers = {
        "evaluator": evaluator_table,
        "cost model": cost_model_table,
        "searcher": searcher_table,
        "allocator": allocator_table,
    }
    tables = [makers[kind](board, names) for kind, names in wanted.items()]
    if request.plot is not None:
        write_page(request.plot, tables)
    lines = [line for one in tables for line in ("", one.title, *table(one.heads, one.rows))]
    data = {
        "traces": [file.name for file in board.files],
        "machines": sorted({file.machine for file in board.files}),
        "seeds": request.seeds,
        "tables": {one.title: one.data for one in tables},
    }
    return Reply(lines[1:], data, request.as_json)
