"""Scalers, encoders and imputers compute what ONNX Runtime computes."""

import numpy as np
import pytest
from onnx import TensorProto

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import UnsupportedError
from tests.autotune_tests.contrib_tests.classical_tests.classical_cases import X, classical, tensor
from tests.autotune_tests.importer_tests.contrib_cases import Case, floats
from tests.autotune_tests.importer_tests.onnx_cases import rewritten, written

WHOLE = np.array([[1, 3, 2], [7, 1, 3]], np.int64)
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X).astype(np.float32)
ZEROS = np.concatenate([X, np.zeros((1, 4), np.float32)])
I64 = (TensorProto.INT64,)

CASES = [
    classical("Scaler", X, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 1.0, 0.5, 3.0]),
    classical("Scaler", WHOLE, offset=[0.5], scale=[2.0]),
    *(classical("Normalizer", ZEROS, norm=norm) for norm in ("MAX", "L1", "L2")),
    classical("Binarizer", X, threshold=0.25),
    classical("Imputer", HOLES, imputed_value_floats=[0.5, 1.0, -1.0, 0.0], replaced_value_float=float("nan")),
    classical("Imputer", WHOLE, outputs=I64, imputed_value_int64s=[9], replaced_value_int64=3),
    classical("FeatureVectorizer", X, floats(5, 3), inputdimensions=[4, 3]),
    classical("ArrayFeatureExtractor", X, np.array([[2, 0, 2]], np.int64)),
    classical("ArrayFeatureExtractor", X[0], np.array([1], np.int64)),
    classical("OneHotEncoder", WHOLE, cats_int64s=[1, 2, 3, 4], zeros=1),
    classical("LabelEncoder", WHOLE, outputs=I64, keys_int64s=[1, 2, 7], values_int64s=[10, 20, 70], default_int64=5),
    classical("LabelEncoder", WHOLE, keys_int64s=[1, 2, 7], values_floats=[0.5, 0.25, 8.0]),
    classical(
        *("LabelEncoder", HOLES[:1]),
        version=4,
        keys_tensor=tensor([np.nan, 0.5], np.float32),
        values_tensor=tensor([1.5, 2.5], np.float32),
        default_tensor=tensor([-2.0], np.float32),
    ),
    *(
        classical(
            *("LabelEncoder", HOLES[:1]),
            version=version,
            keys_floats=[np.nan, 0.5],
            values_floats=[1.5, 2.5],
            default_float=-2.0,
        )
        for version in (2, 4)
    ),
]


def n_grams(x, **attributes):
    """Counts of three words, two pairs and a triple."""
    defaults = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 1, "ngram_indexes": [5, 0, 1, 3, 2, 4]}
    pool = {"ngram_counts": [0, 3, 7], "pool_int64s": [1, 2, 3, 1, 2, 2, 2, 1, 2, 3]}
    return Case("TfIdfVectorizer", (x,), (), {**defaults, **pool, **attributes}, domain="", label=attributes["mode"])


WORDS = np.random.default_rng(0).integers(1, 4, (3, 9))
WEIGHTS = [0.5, 1.0, 2.0, 0.25, 3.0, 1.5]
CASES += [
    n_grams(WORDS, mode="TF", min_gram_length=2),
    n_grams(WORDS, mode="IDF", weights=WEIGHTS),
    n_grams(WORDS[0], mode="TFIDF", weights=WEIGHTS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    rewritten(case.model(), tmp_path, case.feed())


def test_strings_are_refused_with_the_operator_s_name(tmp_path):
    case = classical("OneHotEncoder", WHOLE, cats_strings=["a", "b"])
    model = load_model(written(case.model(), tmp_path))
    with pytest.raises(UnsupportedError, match=rf"ai.onnx.ml::{case.kind} \(node 'one'\).* are strings"):
        simplify(model)
