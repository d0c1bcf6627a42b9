"""The hasher as a scikit-learn transformer: estimator checks, clone, pipelines."""

from __future__ import annotations

import numpy as np
import pytest

import hadahash as hh

sklearn = pytest.importorskip("sklearn")
pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

# Checks that do not apply, and why.
EXPECTED_FAILURES = {
    "check_no_attributes_set_in_init": "Settings of the method are keywords, kept in `settings`.",
    "check_do_not_raise_errors_in_init_or_set_params": "Wrong names and values are refused at once.",
    "check_fit_score_takes_y": "The second argument of fit is called labels.",
    "check_dtype_object": "Raises UsageError, a ValueError, where a TypeError is expected.",
    "check_estimators_nan_inf": "Rows with NaN are skipped and named in `skipped_`, by design.",
}


@pytest.mark.filterwarnings("ignore:.*during set_params")
@parametrize_with_checks(
    [hh.Hasher("lsh", bits=8, device="cpu"), hh.Hasher("itq", bits=1, device="cpu")],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_estimator_checks(estimator, check):
    check(estimator)


def vectors(count: int = 120, seed: int = 0):
    centers = np.random.default_rng(9).normal(size=(3, 12))
    labels = np.arange(count) % 3
    noise = np.random.default_rng(seed).normal(size=(count, 12))
    return 5 + centers[labels] + 0.3 * noise, labels


def test_clone_keeps_the_parameters_and_drops_the_model():
    fitted = hh.Hasher("itq", bits=8, itq_iterations=3, device="cpu").fit(vectors()[0])
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params() and not hasattr(copy, "model_")
    assert copy.set_params(bits=4).bits == 4 and fitted.bits == 8
    with pytest.raises(ValueError, match="not fitted"):
        copy.transform(vectors()[0])


def test_a_pipeline_scales_hashes_and_classifies():
    data, labels = vectors()
    asked, expected = vectors(60, seed=1)
    pipeline = make_pipeline(
        StandardScaler(),
        hh.Hasher("itq", bits=8, device="cpu"),
        KNeighborsClassifier(3, metric="hamming"),
    )
    assert pipeline.fit(data, labels).score(asked, expected) > 0.9


@pytest.mark.parametrize("method", ["itq", "hcsdh"])
def test_a_pipeline_gives_the_signs_of_the_codes(method):
    data, labels = vectors()
    hasher = hh.Hasher(method, bits=8, device="cpu")
    pipeline = Pipeline([("scale", StandardScaler()), ("hash", hasher)])
    signs = pipeline.fit_transform(data, labels)
    assert signs.dtype == np.int8 and set(np.unique(signs)) == {-1, 1}
    scaled = StandardScaler().fit_transform(data)
    codes = pipeline["hash"].encode(scaled)
    assert np.array_equal(codes.signs(), signs)
    assert np.array_equal(pipeline.transform(data), signs)
    assert hh.evaluate(signs, labels, signs, labels).map > 0.8


def test_transform_refuses_rows_that_would_be_missing():
    data = vectors()[0]
    fitted = hh.Hasher("itq", bits=8, device="cpu").fit(data)
    data[4, 4] = np.nan
    with pytest.raises(ValueError, match="1 inputs have no code, the first is 4"):
        fitted.transform(data)
