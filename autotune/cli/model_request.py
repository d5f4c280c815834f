"""The arguments and options of the commands that take a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import typer

from autotune.cli import arguments as opt
from autotune.cli.parsing import (
    parse_bytes,
    parse_count,
    parse_seconds,
    parse_share,
    parse_until,
    parse_weights,
    split_names,
    target_and_shapes,
)
from autotune.options import EFFORTS, Generation, Options

AUTO = "auto"
"""Number of streams: one on each thread."""

LOOK_UP = ("model", "target", "threads", "precision", "import_memory", "inputs", "sizes", "log", "as_json")
"""Fields of a request that looks a model's tasks up in a log."""
GENERATION = ("generate", "positions", "prompts", "sequences")
"""Fields that are about decoders."""
BUILD = (
    *(
        *LOOK_UP,
        "more",
        "out",
        "accuracy",
        "calibration",
        "device",
        "seed",
        "lanes",
        "objective",
        "streams",
        "fallback",
    ),
    *GENERATION,
    "quiet",
)
"""Fields of a request that builds from a log."""


@dataclass(frozen=True)
class ModelRequest:
    """Arguments and options of the commands that take a model: all of them (``tune run``), or some."""

    model: opt.Model
    more: opt.MoreModels = None
    out: opt.Out = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="90s|5m|1m30s", help="Tuning time, including earlier runs in the log; default by --effort."
        ),
    ] = None
    trials: Annotated[int | None, typer.Option(metavar="N", help="Stop after N measured trials.")] = None
    until: opt.Until = None
    effort: Annotated[
        str,
        typer.Option(
            metavar="|".join(EFFORTS),
            help="Tuning time: " + ", ".join(f"{name} {seconds:g} s" for name, seconds in EFFORTS.items()) + ".",
        ),
    ] = Options.effort
    target: opt.Target = "host"
    device: opt.Device = True
    threads: opt.Threads = None
    precision: opt.Precision = Options.precision
    accuracy: opt.Accuracy = None
    calibration: opt.Calibration = None
    import_memory: opt.ImportMemory = None
    weight: opt.Weights = None
    inputs: opt.Inputs = None
    sizes: opt.Sizes = None
    log: opt.Log = None
    seed: opt.Seed = Options.seed
    searcher: opt.Searcher = Options.searcher
    cost_model: opt.CostModel = Options.cost_model
    allocator: opt.Allocator = Options.allocator
    evaluator: opt.Evaluator = Options.evaluator
    lanes: opt.Lanes = Options.lanes
    objective: opt.Objective = Options.objective
    streams: opt.Streams = AUTO
    cluster: opt.Cluster = None
    rpc: opt.Rpc = None
    fallback: opt.Fallback = None
    generate: opt.Generate = False
    positions: opt.Positions = Generation.positions
    prompts: opt.Prompts = "128"
    sequences: opt.Sequences = "1"
    frozen: Annotated[bool, typer.Option("--frozen", help="Measure nothing; a missing record is an error.")] = False
    peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Compare with ONNX Runtime, if it is installed; not with --quiet.")
    ] = True
    explain: opt.Explain = False
    events: opt.Events = None
    as_json: opt.Json = False
    quiet: opt.Quiet = False

    def options(self) -> Options:
        """The options of the run, build or look-up.

        Raises:
            UsageError: for a value that cannot be read.
        """
        same = {item.name: getattr(self, item.name) for item in fields(Options) if hasattr(self, item.name)}
        read = {
            **target_and_shapes(self.target, self.threads, self.inputs, self.sizes, self.model),
            "budget_s": None if self.budget is None else parse_seconds(self.budget),
            "streams": None if self.streams == AUTO else parse_count(self.streams, "--streams"),
            "accuracy": None if self.accuracy is None else parse_share(self.accuracy, "--accuracy"),
            "import_memory": None if self.import_memory is None else parse_bytes(self.import_memory, "--import-memory"),
            "until": None if self.until is None else parse_until(self.until),
            "searcher": opt.choose_strategy("searcher", self.searcher),
            "cost_model": opt.choose_strategy("cost model", self.cost_model),
            "allocator": opt.choose_strategy("allocator", self.allocator),
            "evaluator": opt.choose_strategy("evaluator", self.evaluator),
            "generate": self._generation(),
            "weights": parse_weights(self.weight or ()),
            "peer": self.peer and not self.quiet and not self.frozen,
        }
        return Options(**{**same, **read})

    def _generation(self) -> Generation | None:
        if not self.generate:
            return None
        prompts, sequences = (
            tuple(parse_count(part, flag) for part in split_names(text))
            for text, flag in ((self.prompts, "--prompts"), (self.sequences, "--sequences"))
        )
        return Generation(self.positions, prompts, sequences)
