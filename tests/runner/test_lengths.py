"""Length contracts: pure formulas of captured, actual and bucket sizes."""

import pytest

from runner import AdapterError, CapturedMinusPadding, Custom, Nominal, PerRowLengths


def test_nominal_keeps_scale_samples_a_frame():
    assert Nominal(1920).trimmed(captured=15360, actual=5, bucket=8) == 9600


def test_captured_minus_padding_equals_eager_of_an_affine_decoder():
    for actual in range(1, 9):
        assert CapturedMinusPadding(1920).trimmed(8 * 1920 - 555, actual, 8) == actual * 1920 - 555


def test_a_length_is_never_negative():
    assert CapturedMinusPadding(100).trimmed(captured=50, actual=1, bucket=8) == 0


def test_per_row_lengths_scale_the_rows_own_length():
    assert PerRowLengths("lengths", scale=8).trimmed(captured=64, actual=3, bucket=64) == 24


def test_custom_receives_captured_actual_and_bucket_in_that_order():
    seen = []
    assert Custom(lambda *sizes: seen.append(sizes) or 7).trimmed(40, 3, 8) == 7
    assert seen == [(40, 3, 8)]


@pytest.mark.parametrize("contract", [Nominal(1921), Custom(lambda *_: 99999), PerRowLengths("n", scale=1921)])
def test_asking_for_more_than_was_captured_is_an_error(contract):
    with pytest.raises(AdapterError, match="at most the 15360 elements captured"):
        contract.trimmed(captured=15360, actual=8, bucket=8)


@pytest.mark.parametrize("length", [1.0, True, None])
def test_a_custom_length_must_be_an_int(length):
    with pytest.raises(AdapterError, match="must give an int"):
        Custom(lambda *_: length).trimmed(8, 4, 8)


@pytest.mark.parametrize("scale", [0, -1, 1.5, True])
def test_a_scale_must_be_a_positive_int(scale):
    with pytest.raises(AdapterError, match="scale must be a positive int"):
        Nominal(scale)
