"""A sample of ONNX's node suite, one case per family; ``make conformance`` runs all of it."""

import pytest

from tests.conformance.onnx_nodes.cases import node_cases
from tests.conformance.onnx_nodes.trial import attempt
from tests.conformance.onnx_nodes.workers import outcomes

SAMPLE = (
    "attention_3d_gqa_causal",
    "batchnorm_example_training_mode",
    "bernoulli",
    "bitcast_2d_float32_to_int32",
    "cast_FLOAT_to_FLOAT8E4M3FN",
    "cast_FLOAT_to_BFLOAT16",
    "cast_INT4_to_FLOAT",
    "col2im_pads",
    "convinteger_with_padding",
    "convtranspose_output_shape",
    "cumsum_1d_reverse_exclusive",
    "dequantizelinear_blocked",
    "dft",
    "dynamicquantizelinear",
    "gru_seq_length",
    "if",
    "layer_normalization_default_axis",
    "loop11",
    "loop13_seq",
    "lstm_with_peepholes",
    "maxpool_with_argmax_2d_precomputed_pads",
    "nllloss_NCd1_weight",
    "nonmaxsuppression_suppress_by_IOU",
    "nonzero_example",
    "qlinearconv",
    "qlinearmatmul_2D_int8_float32",
    "reduce_max_bool_inputs",
    "reduce_sum_empty_set",
    "resize_downsample_scales_cubic_antialias",
    "reversesequence_time",
    "rotary_embedding",
    "roialign_mode_max",
    "scan9_sum",
    "scan_sum",
    "sequence_insert_at_back",
    "simple_rnn_with_initial_bias",
    "string_concat",
    "tensorscatter",
    "training_dropout",
    "unique_not_sorted_without_axis",
)
REFUSED = ("if_opt", "image_decoder_decode_png_rgb")


def case_of(name):
    return next(case for case in node_cases() if case.name == f"test_{name}")


@pytest.mark.parametrize("name", SAMPLE)
def test_case_passes(name):
    outcome = attempt(case_of(name), tuned=False)
    assert outcome.kind == "pass", outcome.message


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_refused_by_name(name):
    outcome = attempt(case_of(name), tuned=False)
    assert outcome.kind == "refused", outcome
    assert "\n" not in outcome.message


@pytest.mark.slow
def test_workers_answer_in_order():
    names = [*SAMPLE[:12], *REFUSED]
    answers = list(outcomes([case_of(name) for name in names], False, 2))
    assert [answer.case for answer in answers] == [f"test_{name}" for name in names]
    assert [answer.kind for answer in answers] == ["pass"] * 12 + ["refused"] * len(REFUSED)


def test_lanes_of_a_vector_may_take_different_branches():
    """Heads of 8 numbers in vectors of 16: LLVM computed wrong numbers of the loop that TVM makes of such a vector."""
    case = case_of("rotary_embedding_3d_input")
    assert {attempt(case, tuned=True, seed=seed).kind for seed in range(3)} == {"pass"}
