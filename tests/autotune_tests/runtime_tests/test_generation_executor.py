"""Decoders with their caches in place, against ONNX Runtime fed the same tokens; and what is refused, in one line."""

import itertools

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune import Options
from autotune.options import Generation
from autotune.runtime.generation_executor import TOTAL
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests.fakes import fake_device
from tests.models.language import save_language, tiny
from tests.models.test_language import empty_caches, feed

TOKENS = 16


ALONE = "qwen_concat_32"
"""Built for one sequence at a time only."""

DECODERS = ("llama_concat_32", "gpt2_scatter_32", "qwen_group_4")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Decoder → its model and artifact."""
    by_name = {}
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        for name in (*DECODERS, ALONE):
            folder = tmp_path_factory.mktemp(name)
            path = save_language(tiny(name), folder / "model.onnx")
            wanted = Generation(64, (8,), (1,) if name == ALONE else (1, 2))
            options = Options(out=folder / "out", log=folder / "log.db", effort="instant", generate=wanted, threads=2)
            by_name[name] = path, autotune.tune(path, options).artifact
    return by_name


@pytest.fixture(scope="module", params=DECODERS)
def built(request, artifacts):
    """A decoder, its artifact, and ONNX Runtime's session of it."""
    path, artifact = artifacts[request.param]
    return tiny(request.param), autotune.InferenceSession(artifact), onnxruntime.InferenceSession(path)


def calls(decoder, theirs, batch, cuts):
    """For every call the inputs but caches, the caches as ONNX Runtime has them, and all that it makes."""
    ids = np.random.default_rng(0).integers(0, decoder.vocabulary, (batch, cuts[-1]))
    caches = empty_caches(decoder, batch)
    wanted = [value.name for value in theirs.get_inputs()]
    names = [value.name for value in theirs.get_outputs()]
    for start, stop in itertools.pairwise(cuts):
        inputs = {k: v for k, v in feed(decoder, ids, start, stop, {}).items() if k in wanted}
        outputs = dict(zip(names, theirs.run(None, {**inputs, **caches}), strict=True))
        yield inputs, caches, outputs
        caches = {name: outputs[name.replace("past_key_values", "present")] for name in caches}


def tolerance(decoder):
    # ONNX Runtime rounds activations to 8 bits where weights have few (accuracy_level 4).
    return 2e-4 if decoder.bits == 32 else 0.2


@pytest.mark.parametrize("batch", [1, 2])
def test_logits_of_every_call(built, batch):
    decoder, session, theirs = built
    binding = session.io_binding()
    cuts = [0, 5, *range(6, TOKENS + 1)]
    for inputs, _, outputs in calls(decoder, theirs, batch, cuts):
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0], outputs["logits"], atol=tolerance(decoder))
    assert binding.length == TOKENS
    assert binding.caches.bytes_copied == 0


def test_run_takes_and_gives_caches_as_onnxruntime(built):
    decoder, session, theirs = built
    names = [value.name for value in session.get_outputs()]
    for inputs, caches, outputs in calls(decoder, theirs, 1, [0, 3, 4, 12, 13]):  # 8 in one call, 3 padded
        ours = dict(zip(names, session.run(None, {**inputs, **caches}), strict=True))
        for name in names:
            assert ours[name].shape == outputs[name].shape
            np.testing.assert_allclose(ours[name], outputs[name], atol=tolerance(decoder))


def test_prompts_longer_than_any_part(built):
    decoder, session, theirs = built
    binding = session.io_binding()
    for inputs, _, outputs in calls(decoder, theirs, 1, [0, 21]):
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0], outputs["logits"], atol=tolerance(decoder))


def test_buffers_of_the_caller(built):
    decoder, session, theirs = built
    binding = session.io_binding()
    own = {spec.name: binding.empty_cache(spec.name) for spec in binding.cache_specs()}
    for name, buffer in own.items():
        binding.bind_cpu_input(name, buffer)
        binding.bind_output(name.replace("past_key_values", "present"), array=buffer)
    presents = {}
    for inputs, _, theirs_made in calls(decoder, theirs, 1, [0, 4, 5]):
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        presents = theirs_made
    for name, buffer in own.items():
        present = presents[name.replace("past_key_values", "present")][:, :, :5]
        np.testing.assert_allclose(buffer[:, :, :5], present, atol=tolerance(decoder))


def test_what_is_refused(built):
    decoder, session, theirs = built
    inputs, caches, _ = next(calls(decoder, theirs, 1, [0, 4]))
    with pytest.raises(UsageError, match=r"input 'past_key_values.0.key' is missing"):
        session.run(None, inputs)
    wrong = {**caches, "past_key_values.1.key": np.zeros((1, 3, 5, 16), np.float32)}
    with pytest.raises(UsageError, match=r"(cache|input) 'past_key_values.1.key' has shape .*1.*3.*5.*16"):
        session.run(None, {**inputs, **wrong})
    binding = session.io_binding()
    with pytest.raises(UsageError, match=r"input 'input_ids' is not bound; call bind_cpu_input"):
        session.run_with_iobinding(binding)
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    session.run_with_iobinding(binding)
    binding.caches.lengths[:] = 62
    with pytest.raises(UsageError, match=r"62 positions are in use and 4 are new, and the cache holds 64"):
        session.run_with_iobinding(binding)
    three = session.io_binding()
    for name, array in inputs.items():
        three.bind_cpu_input(name, np.repeat(array, 3, 0) if array.ndim > 1 else array)
    with pytest.raises(UsageError, match=r"3 sequences at a time, and the artifact is for 1, 2; add 3 to --sequences"):
        session.run_with_iobinding(three)


def test_masks_of_one_sequence_are_as_long_as_what_is_in_use(artifacts):
    """Where every part has the same number of sequences, the cache's length is the only size of the mask."""
    decoder, (path, artifact) = tiny(ALONE), artifacts[ALONE]
    session = autotune.InferenceSession(artifact)
    assert next(value.shape for value in session.get_inputs() if value.name == "attention_mask")[1] == TOTAL
    binding = session.io_binding()
    theirs = onnxruntime.InferenceSession(path)
    for inputs, _, outputs in calls(decoder, theirs, 1, [0, 5, 6]):
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0], outputs["logits"], atol=tolerance(decoder))
    binding.bind_cpu_input("attention_mask", np.ones((1, 9), np.int64))
    with pytest.raises(UsageError, match="has 9 elements on axis 1; with 6 positions in use and 1 new"):
        session.run_with_iobinding(binding)
