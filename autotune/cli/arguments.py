"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from autotune.cli.reply import Reply
from autotune.graph.lanes import BYTE_UNITS
from autotune.options import OBJECTIVES, UNTIL
from schedules.target import Target as BuildTarget
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.choices import choose, did_you_mean
from schedules.vocabulary.errors import UsageError

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


def choose_strategy(kind: str, name: str) -> str:
    """``name`` if it is known or can be imported, so that another one is refused before anything is started.

    Raises:
        UsageError: naming the nearest known name and all of them.
    """
    choose(_flag_of(kind), name, dict.fromkeys(strategies(kind)))
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
NEVER = "never"
"""For ``--until``: only the budget and the trials end a run."""

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
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")]
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

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def typed(flag: str, text: str) -> str:
    """Return the option as the user typed it."""
    return f"{flag} {shlex.quote(text)}"


def parse_seconds(text: str, flag: str = "--budget") -> float:
    """``90s``, ``5m``, ``1m30s``, ``1h``, ``2ms``, or plain seconds.

    Raises:
        UsageError: if the text is none of these, or zero.
    """
    try:
        seconds = float(text)
    except ValueError:
        match = _DURATION.fullmatch(text)
        hours, minutes, rest, thousandths = match.groups(default="0") if match and text else ("0", "0", "0", "0")
        seconds = 3600 * int(hours) + 60 * int(minutes) + float(rest) + 1e-3 * float(thousandths)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{typed(flag, text)}: not a time above zero; write for example 90s, 5m or 1m30s")
    return seconds


def parse_bytes(text: str, flag: str) -> int:
    """``4GB`` or ``1.5MB`` → bytes.

    Raises:
        UsageError: if the text is not a size above zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B", text.strip())
    size = float(match[1]) * BYTE_UNITS[match[2]] if match else 0.0
    if size < 1:
        raise UsageError(f"{typed(flag, text)}: not a size; write for example 4GB")
    return int(size)


def parse_share(text: str, flag: str) -> float:
    """``5%`` or ``0.05`` → 0.05.

    Raises:
        UsageError: if the text is not a share between 0 and 1.
    """
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise UsageError(f"{typed(flag, text)}: not a percentage between 0 and 100; write for example 5%")
    return share


def parse_until(text: str) -> float:
    """A share as of ``parse_share``; ``never`` → 0."""
    return 0.0 if text == NEVER else parse_share(text, "--until")


def parse_weights(texts: Sequence[str]) -> dict[str, int]:
    """``["a=3", "b=1"]`` → weights by model name.

    Raises:
        UsageError: if one is not a name and a whole number of 1 or more, or names a model again.
    """
    weights: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        name = name.removesuffix(".onnx")
        if not name or not number.isdecimal() or int(number) < 1:
            raise UsageError(
                f"{typed('--weight', text)}: not a model's name and a whole number; write for example --weight a=3"
            )
        if name in weights:
            raise UsageError(
                f"{typed('--weight', text)}: {name} has the weight {weights[name]} already; give one for each model"
            )
        weights[name] = int(number)
    return weights


def parse_count(text: str, flag: str) -> int:
    """A whole number of 1 or more.

    Raises:
        UsageError: if the text is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{typed(flag, text)}: not a whole number of at least 1; write for example 4")
    return int(text)


EXAMPLE = (
    """JSON with "isa" and "threads", such as '{"isa": "avx2"}', with "cpu" and "threads", such as """
    """'{"cpu": "neoverse-n2", "threads": 4}', or with "kind": "cuda" and "arch\""""
)


def parse_target(text: str) -> dict[str, Any]:
    """``host``, ``cuda`` or JSON → fields of ``Options``.

    A JSON object holds ``isa`` and ``threads`` of this machine; LLVM's name of any ``cpu`` with ``threads``; or
    ``"kind": "cuda"`` with ``arch`` and perhaps ``multiprocessors``.

    Raises:
        UsageError: for anything else.
    """
    if text == "host":
        return {}
    if text == "cuda":
        from autotune.backends.cuda.device import device_target

        return {"target": device_target()}
    try:
        fields = parsed_json(text, MOST_DEPTH)
    except ValueError as error:
        near = did_you_mean(text, ("host", "cuda"))
        raise UsageError(f"{typed('--target', text)}: unknown; {near}give host, cuda or {EXAMPLE}") from error
    if isinstance(fields, dict) and fields.get("kind") == "cuda":
        return {"target": _cuda_target(text, fields)}
    if isinstance(fields, dict) and set(fields) <= {"cpu", "threads"} and isinstance(fields.get("cpu"), str):
        threads = fields.get("threads", 1)
        if not isinstance(threads, int):
            raise UsageError(f"{typed('--target', text)}: give {EXAMPLE}")
        return {"target": BuildTarget.cpu(fields["cpu"], threads)}
    if not isinstance(fields, dict) or not set(fields) <= {"isa", "threads"}:
        raise UsageError(f"{typed('--target', text)}: give {EXAMPLE}")
    return fields


def _cuda_target(text: str, fields: dict[str, Any]) -> BuildTarget:
    arch, count = fields.get("arch"), fields.get("multiprocessors")
    known = set(fields) <= {"kind", "arch", "multiprocessors"} and isinstance(arch, str)
    if not known or not (count is None or (isinstance(count, int) and count > 0)):
        raise UsageError(
            f'{typed("--target", text)}: needs "arch" and at most "multiprocessors", such as '
            '{"kind": "cuda", "arch": "sm_90"}'
        )
    return BuildTarget.cuda(str(arch), count)


def split_names(text: str) -> list[str]:
    """``a,b`` → ["a", "b"]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def target_and_shapes(
    target: str, threads: int | None, inputs: list[str] | None, sizes: Path | None, model: Path
) -> dict[str, Any]:
    """The fields of ``Options`` that ``--target``, ``--threads``, ``--input`` and ``--sizes`` of ``model`` are about.

    Raises:
        UsageError: if one of them cannot be read, or both of the last are given.
    """
    fields = parse_target(target)
    if threads is not None and "target" in fields and fields["target"].mcpu:
        fields["target"] = replace(fields["target"], threads=threads)
    sets: Sequence[Mapping[str, tuple[int, ...]]] = ()
    shares: tuple[float, ...] = ()
    if inputs and sizes:
        raise UsageError("--input does not go with --sizes: both say which sizes to tune for; leave one out")
    if inputs:
        from autotune.importer.onnx_model.shape_sets import shape_sets  # loads onnx

        sets = shape_sets(inputs)
    elif sizes:
        from autotune.importer.traffic import sets_for  # loads onnx

        sets, shares = zip(*sets_for(model, sizes), strict=True)
    return {
        "target": fields.get("target"),
        "isa": fields.get("isa"),
        "threads": threads if threads is not None else fields.get("threads"),
        "inputs": sets[0] if sets else {},
        "shapes": sets if len(sets) > 1 else (),
        "shares": shares if len(sets) > 1 else (),
    }
