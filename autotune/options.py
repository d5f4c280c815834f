"""Every option with its default, in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import platformdirs

from autotune.graph import lanes
from schedules.target import Target
from schedules.vocabulary.bounded import is_number, is_whole
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError

INSTANT = "instant"
"""The effort that measures no kernels: templates guess what the log does not know."""

EFFORTS: Mapping[str, float] = {INSTANT: 0.0, "quick": 20.0, "standard": 120.0, "full": 600.0}
"""Tuning budget in seconds by effort. Heuristic: SqueezeNet is ahead of its peers after 20 s, ResNet-50 after 120 s."""

UNTIL: Mapping[str, float] = {INSTANT: 0.0, "quick": 0.03, "standard": 0.03, "full": 0.01}
"""Remaining gain at which a run ends before its budget is spent, as a share of the model's latency, by effort. What
later trials brought where 3 % stopped: docs/lab/2026-11-28-posterior.md."""

ONNXRUNTIME, NONE = "onnxruntime", "none"
FALLBACKS = (ONNXRUNTIME, NONE)
"""Ways to run operators that TVM cannot express."""

LATENCY, THROUGHPUT, BALANCED = OBJECTIVES = ("latency", "throughput", "balanced")
"""Objectives of an artifact: one request at a time on all threads; as many as there are streams, each on
threads of its own; or both, with kernels for either."""


SHORT_TYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""Precisions of 16 bits → TVM's names of their types."""

TF32 = "tf32"
"""The precision of fp32 operands that tensor cores round to 11 bits where they multiply them."""

SHORTS = (*SHORT_TYPES, TF32)


@dataclass(frozen=True)
class Precision:
    """The products of a model (convolutions, products of matrices) that multiply shorter operands; sums are fp32.

    Attributes:
        products: numbers of those that do, in the order of the imported graph; None: all of them.
        short: what they multiply, one of ``SHORTS``.
    """

    products: frozenset[int] | None = frozenset()
    short: str = "bf16"

    @property
    def dtype(self) -> str:
        """TVM's name of the operands' type; ``tf32``, which lies in memory as float32, has none and is its own."""
        return SHORT_TYPES.get(self.short, self.short)

    def __contains__(self, number: int) -> bool:
        return self.products is None or number in self.products

    def __str__(self) -> str:
        """``fp32``, ``bf16``, ``fp16``, or ``bf16:0,3,4``: what ``parse`` reads."""
        if self.products is None:
            return self.short
        return f"{self.short}:" + ",".join(map(str, sorted(self.products))) if self.products else "fp32"

    @staticmethod
    def parse(text: str) -> Precision:
        """Inverse of ``str``.

        Raises:
            UsageError: for any other text.
        """
        kind, _, numbers = text.partition(":")
        parts = numbers.split(",") if numbers else []
        if kind in SHORTS and all(part.isdecimal() for part in parts):
            return Precision(frozenset(map(int, parts)) if parts else None, kind)
        if text != "fp32":
            near = did_you_mean(text, ("fp32", *SHORTS, AUTO))
            raise UsageError(
                f"--precision {text}: unknown; {near}choose fp32, bf16, fp16, tf32, auto, or bf16: and numbers of "
                "products, such as bf16:0,3,4"
            )
        return Precision()


FP32, BF16 = Precision(), Precision(None)

AUTO = "auto"
"""The precision that is chosen kernel by kernel, by measured gains and errors."""


def default_log() -> Path:
    """Return the tuning log in the user's data folder.

    Raises:
        UsageError: if the user has no home folder.
    """
    folder = Path(platformdirs.user_data_dir("tune"))
    if not folder.is_absolute():
        raise UsageError("this user has no home folder, where the tuning log would be; give --log FILE")
    return folder / "tuning.db"


def cache_folder() -> Path:
    """The user's own cache folder of this program; one that cannot be made where the user has no home folder."""
    folder = platformdirs.user_cache_path("tune-compiler")
    return folder if folder.is_absolute() else Path(os.devnull, "tune-compiler")


@dataclass(frozen=True)
class Generation:
    """The calls that a decoder is built for, which keeps its caches from call to call.

    Attributes:
        positions: that a cache holds; a model may fix the number.
        prompts: new positions of one sequence, of each of which there is a part; longer prompts take several calls.
        sequences: numbers of sequences that get a token each in one call.
    """

    positions: int = 2048
    prompts: tuple[int, ...] = (128,)
    sequences: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        numbers = {"positions": (self.positions,), "prompts": self.prompts, "sequences": self.sequences}
        for name, values in numbers.items():
            if any(number < 1 for number in values):
                raise UsageError(f"{name} are {values}; each must be 1 or more")
        if not self.sequences:
            raise UsageError("no number of sequences is given; give 1 for one sequence at a time")


@dataclass(frozen=True)
class Options:
    """The request of a run.

    Attributes:
        out: artifact directory; None for the model's name with ``.tuned`` in the current folder.
        budget_s: tuning time for this model on this target, seconds, time spent in earlier runs of the log
            included; None takes it from ``effort``.
        elsewhere: keys of tasks that other parts of the run tune too: time spent on them counts there.
        trials: most measured trials; None is no limit.
        until: end when the remaining gain, a bound that is chosen so that it holds in 90 % of recorded runs, is below
            this share of the model's latency (0.01 is 1 %); 0 leaves the end to the budget, None takes the share from
            ``effort``.
        effort: ``instant``, ``quick``, ``standard`` or ``full``; ``instant`` measures no kernels: tasks without records
            are built by their templates' first guesses, verified and timed against the untuned build.
        threads: threads kernels run on; None for every usable core.
        isa: force an instruction-set level below the machine's own.
        inputs: input name → shape, for models that leave shapes open.
        weights: name of a model's file without its suffix → how much one inference of it counts beside one of the other
            models of the run, 1 where it is not named; for runs of several models.
        precision: ``fp32``; ``bf16``: products of bf16 operands, added up in fp32; ``fp16``: likewise, on GPUs;
            ``bf16:0,3``: these products only, numbered in the order of the imported graph; ``auto``: for every product
            what is faster, within ``accuracy`` (docs/precision.md).
        accuracy: with ``auto``, the largest error of the model's outputs, as a share of their root mean square; None is
            what OpenVINO's default precision costs on the same inputs.
        calibration: with ``auto``, the inputs that errors are measured on: an ``.npz`` file of arrays by input name, or
            a folder of such files; None takes random ones.
        import_memory: bytes of memory that importing the model may take beside what its size on disk allows; None is
            what usual models need.
        shapes: one or more of these: the artifact serves them all (docs/shapes.md), and other sizes through ONNX
            Runtime, if ``fallback`` allows it; ``inputs`` is not read.
        shares: of the budget, for each of ``shapes``; empty for equal ones.
        log: path or URL of the tuning log; None for the user's own.
        seed: of every random choice.
        searcher, cost_model, allocator, evaluator: strategies by name.
        batch: configs per slot.
        cluster: measure on the machines of the Ray cluster at this address; ``local`` for one of this machine alone.
        rpc: measure on the devices that TVM's RPC tracker knows, as HOST:PORT:KEY.
        frozen: measure nothing; a task without a record is an error.
        target: what to build for, where that is not this machine's CPU: a CUDA target.
        device: whether a device of ``target`` is there to measure on; without one kernels are chosen from the log and
            by the templates' guesses, compiled and inspected.
        lanes: what runs subgraphs: ``cpu`` (all threads together), ``cpu:2x1`` (two groups of one core, side by side),
            ``auto``: whatever of both is faster, as ``graph.lanes.parse_lanes`` says, or cores and devices, such as
            ``cpu,cuda:0,cuda:1``, as ``graph.lanes.coupled_lanes`` says: all of them, or the fastest lane.
        objective: ``latency``, ``throughput`` or ``balanced`` (docs/serving.md).
        streams: requests that run side by side where the objective is not ``latency``, each on an equal share of the
            threads; None for one on each.
        generate: build a decoder with its caches in place (docs/language-models.md); its shapes are guessed.
        fallback: ``onnxruntime`` to let that run operators that cannot be imported or give wrong numbers
            (docs/fallback.md), and sizes that no set of shapes serves; ``none`` to refuse such models and calls; None
            for the first wherever the other options allow it.
        peer: time the model on ONNX Runtime first, if that is installed, to say what there is to beat.
    """

    out: Path | None = None
    budget_s: float | None = None
    elsewhere: frozenset[str] = frozenset()
    trials: int | None = None
    until: float | None = None
    effort: str = "standard"
    threads: int | None = None
    isa: str | None = None
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    precision: str = "fp32"
    accuracy: float | None = None
    calibration: Path | None = None
    import_memory: int | None = None
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    shares: tuple[float, ...] = ()
    log: str | Path | None = None
    seed: int = 0
    searcher: str = "adaptive"
    cost_model: str = "boosted"
    allocator: str = "share-per-second"
    evaluator: str = "adaptive"
    batch: int = 8
    cluster: str | None = None
    rpc: str | None = None
    frozen: bool = False
    target: Target | None = None
    device: bool = True
    lanes: str = "cpu"
    objective: str = LATENCY
    streams: int | None = None
    generate: Generation | None = None
    fallback: str | None = None
    peer: bool = False

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            near = did_you_mean(self.effort, EFFORTS)
            raise UsageError(f"--effort {self.effort}: unknown; {near}choose one of {', '.join(EFFORTS)}")
        if self.budget_s is not None and not (is_number(self.budget_s) and self.budget_s > 0):
            raise UsageError(f"--budget {self.budget_s}s: must be a number above zero")
        if self.import_memory is not None and not (is_number(self.import_memory) and self.import_memory > 0):
            raise UsageError(f"--import-memory {self.import_memory}B: must be a number above zero")
        if self.until is not None and not (is_number(self.until) and 0.0 <= self.until < 1.0):
            raise UsageError(f"--until {self.until}: must be a share of the model's latency, at least 0 and below 1")
        for flag, number, least in (
            ("--trials", self.trials, 0),
            ("--seed", self.seed, 0),
            ("--threads", self.threads, None),
            ("--streams", self.streams, None),
            ("batch", self.batch, 1),
        ):
            if number is not None and not is_whole(number):
                raise UsageError(f"{flag} {number!r}: must be a whole number")
            if number is not None and least is not None and number < least:
                raise UsageError(f"{flag} {number}: must be at least {least}")
        for name, weight in self.weights.items():
            if not is_whole(weight) or weight < 1:
                raise UsageError(f"--weight {name}={weight}: must be a whole number of at least 1")
        if self.fallback not in (None, *FALLBACKS):
            raise UsageError(f"--fallback {self.fallback}: unknown; choose {' or '.join(FALLBACKS)}")
        self._check_streams()
        self._check_precision()
        self._check_conflicts()
        if self.out is not None and not isinstance(self.out, Path):
            object.__setattr__(self, "out", Path(self.out))

    def _check_streams(self) -> None:
        if self.objective not in OBJECTIVES:
            near = did_you_mean(self.objective, OBJECTIVES)
            raise UsageError(f"--objective {self.objective}: unknown; {near}choose one of {', '.join(OBJECTIVES)}")
        if self.streams is not None and (self.streams < 1 or self.objective == LATENCY):
            raise UsageError(
                f"--streams {self.streams}: needs --objective {THROUGHPUT} or {BALANCED}, and at least 1 stream"
            )

    def _check_precision(self) -> None:
        if self.precision != AUTO:
            Precision.parse(self.precision)
            if self.accuracy is not None or self.calibration is not None:
                raise UsageError("--accuracy and --calibration are for --precision auto; add it, or leave them out")
        elif self.accuracy is not None and not 0.0 < self.accuracy < 1.0:
            raise UsageError(
                f"--accuracy {self.accuracy:g}: must be a share of the outputs' root mean square between 0 and 1"
            )

    def _check_conflicts(self) -> None:
        flags = {name: typed for name, is_given in GIVEN.items() if (typed := is_given(self))}
        for names, others, why in CONFLICTS:
            pairs = [(flags[one], flags[other]) for one in names for other in others if {one, other} <= flags.keys()]
            if pairs:
                raise UsageError(f"{pairs[0][0]} does not go with {pairs[0][1]}: {why}; leave one out")

    @property
    def leaves_out(self) -> bool:
        """Whether operators may be left to ONNX Runtime."""
        try:
            return self.fallback != NONE and replace(self, fallback=ONNXRUNTIME).fallback == ONNXRUNTIME
        except UsageError:  # another option does not allow it
            return False

    @property
    def remote(self) -> bool:
        """Whether other machines measure."""
        return self.cluster is not None or self.rpc is not None

    @property
    def searches(self) -> bool:
        """Whether kernels are measured, if there is time left."""
        return self.device and not self.frozen and self.effort != INSTANT

    @property
    def seconds(self) -> float:
        """The tuning budget in seconds."""
        return self.budget_s if self.budget_s is not None else EFFORTS[self.effort]

    @property
    def enough(self) -> float:
        """The remaining gain at which the run ends, as a share of the model's latency; 0 for none."""
        return self.until if self.until is not None else UNTIL[self.effort]


def _flag(name: str, value: object) -> str:
    """An option as it is typed; empty where it has no value."""
    return "" if value is None else f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}"


def _lanes(options: Options, of_device: bool) -> str:
    """``--lanes`` of groups of cores, or of a device."""
    is_given = options.lanes != Options.lanes and any(k in options.lanes for k in lanes.DEVICE_KINDS) == of_device
    return f"--lanes {options.lanes}" if is_given else ""


def _target(options: Options, of_device: bool) -> str:
    """``--target`` of a processor, or of a device that no lane names."""
    target = options.target
    if target is None or bool(target.arch) != of_device or _lanes(options, True):
        return ""
    return f"--target {target.arch or target.mcpu or target.isa}"


GIVEN: Mapping[str, Callable[[Options], str]] = {
    "instant": lambda options: f"--effort {INSTANT}" * (options.effort == INSTANT),
    "budget": lambda options: "" if options.budget_s is None else f"--budget {options.budget_s:g}s",
    "trials": lambda options: _flag("trials", options.trials),
    "until": lambda options: _flag("until", options.until),
    "frozen": lambda options: "--frozen (or tune build)" * options.frozen,
    "cluster": lambda options: _flag("cluster", options.cluster),
    "rpc": lambda options: _flag("rpc", options.rpc),
    "processor": lambda options: _target(options, of_device=False),
    "device target": lambda options: _target(options, of_device=True),
    "absent": lambda options: "--no-device" * (not options.device),
    "groups": lambda options: _lanes(options, of_device=False),
    "device lane": lambda options: _lanes(options, of_device=True),
    "streams": lambda options: f"--objective {options.objective}" * (options.objective != LATENCY),
    "balanced": lambda options: f"--objective {BALANCED}" * (options.objective == BALANCED),
    "auto": lambda options: f"--precision {AUTO}" * (options.precision == AUTO),
    "bf16": lambda options: f"--precision {options.precision}" * (options.precision not in ("fp32", AUTO)),
    "numbers": lambda options: f"--precision {options.precision}" * (":" in options.precision),
    "fallback": lambda options: f"--fallback {ONNXRUNTIME}" * (options.fallback == ONNXRUNTIME),
    "shapes": lambda options: "--input with several sets of shapes" * bool(options.shapes),
    "generate": lambda options: "--generate" * (options.generate is not None),
}
"""Name of an option in ``CONFLICTS`` → how it was typed; empty where it was not given."""

REMOTE, LANES, TARGETS = ("cluster", "rpc"), ("groups", "device lane"), ("processor", "device target", "absent")

CONFLICTS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        ("instant",),
        ("budget", "trials", "until", "frozen", *LANES, "streams", *REMOTE, "auto"),
        "instant measures no kernels and builds for all threads of this machine together",
    ),
    (("cluster",), ("rpc",), "they are two places to measure"),
    (REMOTE, ("frozen",), "a frozen run measures nothing"),
    (REMOTE, LANES, "lanes are tuned on the machine that they run on"),
    (REMOTE, ("device target",), "other machines measure CPUs; 'tune pack' makes a job for a GPU elsewhere"),
    (REMOTE, ("fallback", "balanced", "auto", "generate"), "it is timed and compared on this machine"),
    (("streams",), (*LANES, *TARGETS), "streams divide the CPU's cores of this machine"),
    (("auto",), (*LANES, "processor", "absent", "generate"), "precisions are compared on one device of this machine"),
    (("bf16",), ("device lane",), "a model on two devices is computed in fp32"),
    (("fallback",), ("numbers", "auto"), "products are numbered in the whole model, and a fallback cuts it"),
    (("fallback",), ("balanced", "device lane", "generate"), "a part of an artifact has no parts of its own"),
    (("fallback",), ("device target", "absent"), "the whole is compared with ONNX Runtime on this machine's CPU"),
    (("generate",), (*LANES, *TARGETS), "a decoder is built for all threads of this machine together"),
    (("device lane",), ("frozen",), "placing a model measures it"),
    (("device lane",), ("shapes",), "a part of an artifact has no parts of its own"),
    (("groups",), ("device target",), "a CUDA artifact runs on its device alone"),
    (("groups",), ("absent",), "lanes are timed on the machine that they run on"),
)
"""Options that are refused together, of which one is in each group, and why."""
