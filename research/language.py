"""``python -m research.language FOLDER``: decoders against other engines, in turn, on equal tokens.

The others are ONNX Runtime, with activations of low-bit products in int8, as the model says, and in fp32; OpenVINO in
fp32 and in the precision that it chooses; and llama.cpp, where its Python binding is installed (``llama_engine.py``).

Ours keeps its caches in place (``run_with_iobinding``). ONNX Runtime is given its presents back as pasts through its
own binding, so it copies only what its kernels copy; OpenVINO through its infer request. Every engine is fed the same
tokens, so that logits can be compared at every step.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import tvm
from onnx import helper

import autotune
from autotune import Options
from autotune.host.machine import host_target, thread_cpus
from autotune.host.roofline import read_gb_s
from autotune.options import Generation
from tests.models.language import HALF_BILLION, LANGUAGE, Decoder, save_language

Array = np.ndarray
Step = Callable[[Array, int], Array]
"""(new tokens (1, n), position of the first) → logits (1, n, vocabulary)."""


QUIET_S = 0.3
"""Before an engine's turn: threads of the engine before spin for a while after its last call."""


def feed(decoder: Decoder, tokens: Array, start: int) -> dict[str, Array]:
    """Every input but the caches."""
    stop = start + tokens.shape[1]
    extent = decoder.positions if decoder.cache == "scatter" else stop
    return {
        "input_ids": tokens,
        "attention_mask": (np.arange(extent)[None] < stop).astype(np.int64),
        "position_ids": np.arange(start, stop)[None],
        "cache_position": np.arange(start, stop),
    }


def ours(decoder: Decoder, artifact: Path, threads: int) -> Step:
    session = autotune.InferenceSession(artifact, threads=threads)
    wanted = {value.name for value in session.get_inputs()}
    binding = session.io_binding()

    def step(tokens: Array, start: int) -> Array:
        if start == 0:
            binding.rewind(0)
        for name, array in feed(decoder, tokens, start).items():
            if name in wanted:
                binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        assert not binding.caches.bytes_copied
        return binding.get_outputs()[0]

    return step


def without_accuracy(model: Path) -> Path:
    """The same model, beside it, whose products of few bits leave the type of activations to ONNX Runtime."""
    path = model.with_suffix(".plain.onnx")
    proto = onnx.load(model, load_external_data=False)
    for node in proto.graph.node:
        if node.op_type == "MatMulNBits":
            kept = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)
    path.write_bytes(proto.SerializeToString())
    return path


def onnxruntime_step(decoder: Decoder, model: Path, threads: int, plain: bool = False) -> Step:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if plain:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
        model = without_accuracy(model)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_inputs()]
    pasts = [name for name in wanted if name.startswith("past")]
    held: dict[str, Any] = {}
    length = decoder.positions if decoder.cache == "scatter" else 0

    def step(tokens: Array, start: int) -> Array:
        binding = session.io_binding()
        if start == 0:
            empty = np.zeros((1, decoder.groups, length, decoder.size), np.float32)
            held.update({name: onnxruntime.OrtValue.ortvalue_from_numpy(empty) for name in pasts})
        for name, array in feed(decoder, tokens, start).items():
            if name in wanted:
                binding.bind_cpu_input(name, array)
        for name in pasts:
            binding.bind_ortvalue_input(name, held[name])
        for value in session.get_outputs():
            binding.bind_output(value.name)
        session.run_with_iobinding(binding)
        outputs = dict(zip([value.name for value in session.get_outputs()], binding.get_outputs(), strict=True))
        held.update({name: outputs[name.replace("past_key_values", "present")] for name in pasts})
        return outputs["logits"].numpy()

    return step


def openvino_step(decoder: Decoder, model: Path, threads: int, precision: str = "") -> Step:
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision:
        options["INFERENCE_PRECISION_HINT"] = precision
    compiled = openvino.Core().compile_model(model, "CPU", options)
    request = compiled.create_infer_request()
    wanted = [name for port in compiled.inputs for name in port.get_names()]
    pasts = [name for name in wanted if name.startswith("past")]
    held: dict[str, Array] = {}
    length = decoder.positions if decoder.cache == "scatter" else 0

    def step(tokens: Array, start: int) -> Array:
        if start == 0:
            held.update({n: np.zeros((1, decoder.groups, length, decoder.size), np.float32) for n in pasts})
        inputs = {name: array for name, array in feed(decoder, tokens, start).items() if name in wanted}
        outputs = request.infer({**inputs, **held}, share_inputs=True)
        held.update({name: outputs[name.replace("past_key_values", "present")].copy() for name in pasts})
        return outputs["logits"]

    return step


def token_bytes(model: Path) -> int:
    """Bytes of weights that every token reads: all but tables, of which it reads a row."""
    graph = onnx.load(model, load_external_data=False).graph
    rows = {node.input[0] for node in graph.node if node.op_type in ("Gather", "GatherBlockQuantized")}
    sizes = {
        t.name: math.prod(t.dims) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize for t in graph.initializer
    }
    return sum(size for name, size in sizes.items() if name not in rows)


def bandwidth(threads: int, size: int, times: int) -> float:
    """1e9 bytes per second of reading an array of ``size`` bytes, by as many threads: the median of so many times.

    As many as a token's weights are read in a round, for the more often, the more of an array the host's L3 holds.
    """
    target = host_target(threads)

    def median_s(kernel: tvm.runtime.Module, arrays: list[Array]) -> float:
        tensors, seconds = [tvm.runtime.from_dlpack(array) for array in arrays], []
        for _ in range(1 + times):
            began = time.perf_counter()
            kernel["main"](*tensors)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[1:])  # the first time finds the pages

    def measured() -> float:
        cpus = [str(cpu) for cpu in thread_cpus(threads)]
        tvm.get_global_func("runtime.config_threadpool")(-2, threads, cpus)
        return read_gb_s(target, size, 1, median_s)

    with ThreadPoolExecutor(1) as own:  # TVM keeps a pool of threads for each that calls
        return own.submit(measured).result()


def timed(step: Step, tokens: Array, prompt: int) -> tuple[float, list[float], list[Array]]:
    """Seconds to the first token, of every token behind it, and the last logits of every call."""
    began = time.perf_counter()
    logits = [step(tokens[:, :prompt], 0)[:, -1].copy()]
    first = time.perf_counter() - began
    seconds = []
    for place in range(prompt, tokens.shape[1]):
        began = time.perf_counter()
        outputs = step(tokens[:, place : place + 1], place)
        seconds.append(time.perf_counter() - began)
        logits.append(outputs[:, -1].copy())
    return first, seconds, logits


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.language", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="llama_concat_32", choices=[*LANGUAGE, "half_billion"])
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tuning")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32, help="of every round, behind the prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="fp32", help="of our products by weights that are not of few bits")
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--engines", default="", help="names with commas between; all unless given")
    parser.add_argument("--build-only", action="store_true")
    chosen = parser.parse_args()
    decoder = HALF_BILLION if chosen.model == "half_billion" else LANGUAGE[chosen.model]()
    suffix = "" if chosen.precision == "fp32" else f"-{chosen.precision}"
    model, artifact = chosen.folder / f"{chosen.model}.onnx", chosen.folder / f"{chosen.model}{suffix}.tuned"
    if not model.exists():
        save_language(decoder, model)
    if not artifact.exists():
        wanted = Generation(chosen.positions, (chosen.prompt,))
        log = chosen.folder / "log.db"
        options = Options(out=artifact, budget_s=chosen.budget, log=log, generate=wanted, threads=chosen.threads)
        autotune.tune(model, replace(options, precision=chosen.precision))
    if not chosen.build_only:
        print(json.dumps(compared(chosen, decoder, model, artifact), indent=1))


def compared(chosen: argparse.Namespace, decoder: Decoder, model: Path, artifact: Path) -> dict[str, Any]:
    """Medians of every engine over all rounds, taken in turn."""
    from research.llama_engine import llama_step

    makers = {"ours": ours, "onnxruntime": onnxruntime_step, "llama.cpp": llama_step}
    makers |= {"openvino": partial(openvino_step, precision="f32"), "openvino default": openvino_step}
    if decoder.bits < 32:
        makers["onnxruntime fp32 activations"] = partial(onnxruntime_step, plain=True)
    makers = {name: make for name, make in makers.items() if not chosen.engines or name in chosen.engines.split(",")}
    steps: dict[str, Step] = {}
    refused: dict[str, str] = {}
    for name, make in makers.items():
        try:
            steps[name] = make(decoder, artifact if name == "ours" else model, chosen.threads)
        except Exception as error:  # an engine without an operator of the model is no reason to end
            refused[name] = str(error).splitlines()[0][:200]
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, decoder.vocabulary, (1, chosen.prompt + chosen.tokens))
    first: dict[str, list[float]] = {name: [] for name in steps}
    later: dict[str, list[float]] = {name: [] for name in steps}
    logits: dict[str, list[Array]] = {}
    for step in steps.values():  # warm
        timed(step, tokens[:, : chosen.prompt + 2], chosen.prompt)
    before = psutil.Process().memory_info().rss
    size, read = token_bytes(model), []
    for _ in range(chosen.rounds):
        read.append(bandwidth(chosen.threads, size, chosen.tokens))
        for name, step in steps.items():
            time.sleep(QUIET_S)
            begun, seconds, logits[name] = timed(step, tokens, chosen.prompt)
            first[name].append(begun)
            later[name] += seconds
    grown = psutil.Process().memory_info().rss - before
    theirs = logits.get("onnxruntime", logits["ours"])
    worst = max(float(np.abs(a - b).max()) for a, b in zip(logits["ours"], theirs, strict=True))
    return {
        "model": chosen.model,
        "refused": refused,
        "first_token_ms": {name: 1e3 * statistics.median(values) for name, values in first.items()},
        "token_ms": {name: 1e3 * statistics.median(values) for name, values in later.items()},
        "token_quartiles_ms": {n: [1e3 * q for q in statistics.quantiles(v)[::2]] for n, v in later.items()},
        "tokens_per_s": {name: 1 / statistics.median(values) for name, values in later.items()},
        "weights_of_a_token_mb": size / 1e6,
        "memory_gb_s": statistics.median(read),
        "share_of_memory": {n: size / statistics.median(v) / 1e9 / statistics.median(read) for n, v in later.items()},
        "worst_logit_error": worst,
        "logit_deviation": float(np.std(theirs[-1])),
        "memory_grown_mb": grown / 2**20,
    }


if __name__ == "__main__":
    main()
