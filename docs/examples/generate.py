"""Generate text with an exported decoder and a tokenizer of your own.

    tune run model.onnx --generate --out model.tuned
    python docs/examples/generate.py model.tuned tokenizer.json "Once upon a time"

The tokenizer is a file of Hugging Face's ``tokenizers``. Without one, give tokens by number: ``- "1 2 3"``.
"""

import sys
import time

import numpy as np

import autotune

TOKENS = 64


def extras(session, start, stop, capacity):
    """Whatever the model takes besides tokens and caches, for positions ``start`` to ``stop``, by name."""
    fixed = any(value.name == "cache_position" for value in session.get_inputs())
    extent = capacity if fixed else stop
    return {
        "attention_mask": (np.arange(extent)[None] < stop).astype(np.int64),
        "position_ids": np.arange(start, stop)[None],
        "cache_position": np.arange(start, stop),
    }


def generate(session, prompt, count):
    """``count`` tokens behind ``prompt``, each the likeliest; yields them as they come."""
    binding = session.io_binding()
    capacity = binding.cache_specs()[0].shape[2]
    wanted = [value.name for value in session.get_inputs()]
    new, start = np.array([prompt], np.int64), 0
    for _ in range(count):
        stop = start + new.shape[1]
        binding.bind_cpu_input("input_ids", new)
        for name, array in extras(session, start, stop, capacity).items():
            if name in wanted:
                binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        (logits,) = binding.get_outputs()
        new, start = logits[:, -1:].argmax(-1), stop  # sampling is the caller's: this is the greedy way
        yield int(new[0, 0])


def main(artifact, tokenizer, text):
    """Generate, print, and say how fast."""
    session = autotune.InferenceSession(artifact)
    if tokenizer == "-":
        prompt, decode = [int(number) for number in text.split()], str
    else:
        from tokenizers import Tokenizer

        known = Tokenizer.from_file(tokenizer)
        prompt = known.encode(text).ids

        def decode(token):
            return known.decode([token])

    began = time.perf_counter()
    first = 0.0
    for token in generate(session, prompt, TOKENS):
        first = first or time.perf_counter() - began
        print(decode(token), end=" ", flush=True)
    rest = time.perf_counter() - began - first
    print(f"\nfirst token after {1e3 * first:.0f} ms, then {(TOKENS - 1) / rest:.1f} tokens/s")


if __name__ == "__main__":
    main(*sys.argv[1:])
