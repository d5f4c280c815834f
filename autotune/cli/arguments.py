"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from autotune.cli.reply import Reply
from autotune.options import OBJECTIVES, UNTIL
from schedules.vocabulary.choices import choose

Request = TypeVar("Request")


def taking(request: type[Request], *names: str) -> Callable[[Callable[[Request], Reply]], Callable[..., Reply]]:
    """Make a command of a function of one frozen dataclass: its fields are the arguments and options of the command.

    Args:
        names: the fields that the command has; the others keep their defaults. None stands for all.
    """

    def decorate(command: Callable[[Request], Reply]) -> Callable[..., Reply]:
        def called(**fields: Any) -> Reply:
            return command(request(**fields))

        functools.update_wrapper(called, command)
        signature = inspect.signature(request, eval_str=True)
        chosen = [parameter for parameter in signature.parameters.values() if not names or parameter.name in names]
        # typer reads both.
        called.__signature__ = signature.replace(parameters=chosen)  # type: ignore[attr-defined]
        called.__annotations__ = get_type_hints(request, include_extras=True)
        return called

    return decorate


def strategies(kind: str) -> tuple[str, ...]:
    """Every known name of a kind of strategy."""
    # NumPy comes with these: some 0.1 s that --help does not need.
    from autotune.measure.evaluator import EVALUATORS
    from costmodels.cost_model_catalog import COST_MODELS
    from search.allocators.allocator_catalog import ALLOCATORS
    from search.searchers.searcher_catalog import SEARCHERS

    known = {"searcher": SEARCHERS, "cost model": COST_MODELS, "allocator": ALLOCATORS, "evaluator": EVALUATORS}
    return known[kind]


def choose_strategy(kind: str, name: str, flag: str = "") -> str:
    """``name`` if it is known or can be imported, so that another one is refused before anything is started.

    Args:
        flag: the option that takes the name; by default the kind's own.

    Raises:
        UsageError: naming the nearest known name and all of them.
    """
    choose(flag or _flag_of(kind), name, dict.fromkeys(strategies(kind)))
    return name


def _flag_of(kind: str) -> str:
    return f"--{kind.replace(' ', '-')}"


NAMES = {
    "searcher": "adaptive, annealing, annealing-released, autotvm, bayesian, boosted, coordinate, evolutionary, random",
    "cost model": "boosted, extra-trees, forest, gaussian-process",
    "allocator": "share-per-second, round-robin-paced, gradient, dynatune and others",
    "evaluator": "adaptive, cv, cv-released, fixed, time",
}
"""Kind of strategy → its names for help. The catalogues load NumPy, which --help does not need."""


def _strategy(kind: str, help_text: str) -> Any:
    """Return the option for a strategy by name."""
    return typer.Option(
        _flag_of(kind),
        metavar="NAME",
        help=f"{help_text}: {NAMES[kind]}, or your own as module:name.",
        rich_help_panel="Strategies",
        autocompletion=lambda: sorted(strategies(kind)),
    )


Searcher = Annotated[str, _strategy("searcher", "Which config is tried next")]
CostModel = Annotated[str, _strategy("cost model", "What predicts the speed of configs")]
Allocator = Annotated[str, _strategy("allocator", "Which task is tuned next")]
Evaluator = Annotated[str, _strategy("evaluator", "When a timing is good enough")]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)]
MoreModels = Annotated[
    list[Path] | None,
    typer.Argument(metavar="MORE", help="More ONNX files: one budget for all.", show_default=False),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="NAME=N",
        help="With several models: how much an inference of NAME.onnx counts; repeatable, default 1.",
    ),
]
ARTIFACT_HELP = "Artifact directory made by 'tune run'. It is native code: open only what you trust."

ArtifactFolder = Annotated[Path, typer.Argument(metavar="ARTIFACT", help=ARTIFACT_HELP, show_default=False)]
Precision = Annotated[
    str,
    typer.Option(
        metavar="fp32|bf16|fp16|tf32|auto|bf16:NUMBERS",
        help="Operands of convolutions and matrix products: fp32, bf16, or on GPUs fp16 and tf32; sums are fp32. auto "
        "takes the fastest of fp32, bf16 and, on GPUs, tf32 within --accuracy. bf16:0,3 takes bf16 for the products "
        "with these numbers.",
        rich_help_panel="Precision",
    ),
]
Accuracy = Annotated[
    str | None,
    typer.Option(
        "--accuracy",
        metavar="1%",
        help="With --precision auto: the largest error of the outputs relative to their root mean square; default the "
        "error of OpenVINO's default on the same inputs.",
        rich_help_panel="Precision",
    ),
]
ImportMemory = Annotated[
    str | None,
    typer.Option(
        "--import-memory",
        metavar="4GB",
        help="Memory that the import may use beyond the size of the model on disk; default 512 MiB.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE.npz|FOLDER",
        help="With --precision auto: inputs to measure errors on, arrays by input name; default random.",
        rich_help_panel="Precision",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Artifact directory; default MODEL's stem + '.tuned'. With several models: the folder for all.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads of the kernels; default all usable cores.",
        rich_help_panel="Where kernels run",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="host|cuda|JSON",
        help='host; less of it, such as {"isa": "avx2"}; another CPU, such as {"cpu": "neoverse-n2", "threads": 4}; '
        'cuda, or {"kind": "cuda", "arch": "sm_90"}.',
        rich_help_panel="Where kernels run",
    ),
]
Device = Annotated[
    bool,
    typer.Option(
        "--device/--no-device",
        help="Whether the target is available; without it nothing is measured or run.",
        rich_help_panel="Where kernels run",
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        metavar="onnxruntime|none",
        help="Engine for operators that cannot be imported or give wrong numbers, and for sizes without a set of "
        "shapes: onnxruntime, the default where other options allow it. none refuses them.",
        rich_help_panel="Where kernels run",
    ),
]
Generate = Annotated[
    bool,
    typer.Option(
        "--generate",
        help="The model is a decoder: keep its caches in place. Shapes are guessed from names.",
        rich_help_panel="Language models",
    ),
]
Positions = Annotated[
    int,
    typer.Option(
        "--positions", metavar="N", help="With --generate: positions in a cache.", rich_help_panel="Language models"
    ),
]
Prompts = Annotated[
    str,
    typer.Option(
        "--prompts",
        metavar="N,N",
        help="With --generate: prompt lengths with kernels of their own.",
        rich_help_panel="Language models",
    ),
]
Sequences = Annotated[
    str,
    typer.Option(
        "--sequences",
        metavar="N,N",
        help="With --generate: numbers of sequences that get a token in one call.",
        rich_help_panel="Language models",
    ),
]
Lanes = Annotated[
    str,
    typer.Option(
        "--lanes",
        metavar="cpu|cpu:2x1|auto|cpu,cuda:0",
        help="Processors that run branches. cpu: all threads together. cpu:2x1: two groups of one core; cpu:3+1: of "
        "three and one. auto: the faster of both; auto:3+1: with these groups. cpu,cuda:0: the CPU and a GPU; "
        "cpu,cuda:0=4GB,cuda:1: 4 GB of its memory, and a second GPU; cpu:0,cpu:1-3,cuda:0: groups of cores and a GPU.",
        rich_help_panel="Where kernels run",
    ),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="|".join(OBJECTIVES),
        help="latency: one request at a time on all threads; throughput: many at once on streams; balanced: both.",
        rich_help_panel="Where kernels run",
    ),
]
Streams = Annotated[
    str,
    typer.Option(
        "--streams",
        metavar="N|auto",
        help="Requests at once, each on its share of the threads; auto: one per thread.",
        rich_help_panel="Where kernels run",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME:1x3x224x224",
        help="Shape of an input with open sizes; repeatable. {1,8} or {1..32} instead of a size, or several shapes of "
        "one input, give one artifact for all.",
    ),
]
SIZES = "How often which sizes are asked for, as session.sizes() returns it: sets of shapes and budgets follow."
Sizes = Annotated[Path | None, typer.Option("--sizes", metavar="FILE.json", help=SIZES)]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="PATH|URL",
        envvar="TUNE_LOG",
        help="Tuning log: a file or a postgresql:// URL; default one per user.",
    ),
]

Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="1%|never",
        help="End before the budget when the bound on the model's remaining gain is below this share. The bound is "
        "chosen so that it holds in 90 % of recorded runs. Default "
        + ", ".join(f"{name} {share:.0%}" for name, share in UNTIL.items() if share)
        + ".",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS|local",
        help="Measure on the machines of a Ray cluster; local: a cluster of this machine alone.",
        rich_help_panel="Other machines",
    ),
]
Rpc = Annotated[
    str | None,
    typer.Option(
        "--rpc",
        metavar="HOST:PORT:KEY",
        help="Measure on the devices of TVM's RPC tracker under KEY; plain text: use a tunnel.",
        rich_help_panel="Other machines",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Explain what limits the slowest kernels and what would help.")
]
Events = Annotated[
    Path | None, typer.Option("--events", metavar="FILE", help="Write events as JSON lines while they happen.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
