"""Bucket lists are validated early, and a lookup finds the cheapest bucket that holds a call."""

import random

import pytest

from runner import EXACT, PADDED, AdapterError, BucketTable

AXES = {"batch": PADDED, "frames": PADDED}


def table(*sizes, axes=AXES):
    return BucketTable([dict(zip(axes, size, strict=True)) for size in sizes], axes)


def test_a_bucket_reads_as_first_letters_and_sizes_in_axis_order():
    (bucket,) = BucketTable([{"frames": 8, "batch": 1}], AXES).buckets
    assert (str(bucket), dict(bucket), bucket.work) == ("b1-f8", {"batch": 1, "frames": 8}, 8)


def test_buckets_of_equal_sizes_are_one_dictionary_key():
    assert len({table((1, 8)).buckets[0], table((1, 8)).buckets[0]}) == 1


def test_lookup_finds_least_work_not_the_nearest_axis():
    found = table((8, 8), (1, 32)).lookup({"batch": 1, "frames": 8})
    assert str(found) == "b1-f32"


def test_lookup_breaks_ties_by_axis_order():
    assert str(table((2, 4), (1, 8)).lookup({"batch": 1, "frames": 4})) == "b1-f8"


@pytest.mark.parametrize(("frames", "found"), [(7, "b1-f8"), (8, "b1-f8"), (9, "b1-f16"), (16, "b1-f16"), (17, "None")])
def test_every_edge_of_a_bucket(frames, found):
    assert str(table((1, 8), (1, 16)).lookup({"batch": 1, "frames": frames})) == found


def test_an_exact_axis_must_be_equal_and_a_padded_one_may_be_smaller():
    exact = table((4, 8), axes={"batch": PADDED, "frames": EXACT})
    assert exact.lookup({"batch": 3, "frames": 8}) is not None
    assert exact.lookup({"batch": 4, "frames": 7}) is None


def test_an_exact_axis_may_be_empty_and_a_padded_one_may_not():
    axes = {"frames": PADDED, "cached": EXACT}
    found = table((8, 0), (8, 32), axes=axes)
    assert str(found.lookup({"frames": 5, "cached": 0})) == "f8-c0"
    assert str(found.lookup({"frames": 5, "cached": 32})) == "f8-c32"
    assert found.lookup({"frames": 5, "cached": 1}) is None
    with pytest.raises(AdapterError, match="must be a positive int, found 0"):
        table((0, 32), axes=axes)


def test_lookup_agrees_with_a_search_of_every_bucket():
    rng = random.Random(0)
    many = table(*{(rng.randint(1, 8), rng.randint(1, 64)) for _ in range(64)})
    for _ in range(500):
        batch, frames = rng.randint(1, 9), rng.randint(1, 70)
        holding = [b for b in many.buckets if b["batch"] >= batch and b["frames"] >= frames]
        found = many.lookup({"batch": batch, "frames": frames})
        assert (found.work if found else None) == min((b.work for b in holding), default=None)


def test_of_some_buckets_the_smallest_that_holds_the_sizes_is_found():
    every = table((1, 8), (2, 8), (2, 16))
    small, middle, large = every.buckets
    asked = {"batch": 1, "frames": 5}
    assert (every.lookup(asked), every.lookup(asked, {large, middle})) == (small, middle)
    assert (every.lookup(asked, {large: "its graph"}), every.lookup(asked, ())) == (large, None)


def test_the_cache_of_seen_sizes_stays_bounded():
    many = table((1, 8))
    for frames in range(10_000):
        many.lookup({"batch": 1, "frames": frames + 1})
    assert many._remembered.cache_info().currsize <= 4096


def test_buckets_are_ordered_by_work():
    assert [str(b) for b in table((4, 8), (1, 8), (1, 16)).buckets] == ["b1-f8", "b1-f16", "b4-f8"]


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ([], "buckets is empty"),
        ([{"batch": 1}], r"buckets\[0\] must give one size for each of \['batch', 'frames'\]"),
        ([{"batch": 1, "frames": 8, "n_vq": 4}], "n_vq"),
        ([{"batch": 1, "frames": 0}], r"buckets\[0\]\['frames'\] must be a positive int, found 0"),
        ([{"batch": True, "frames": 8}], "found True"),
        ([{"batch": 1, "frames": 8.0}], "found 8.0"),
        ([{"batch": 1, "frames": 8}, {"frames": 8, "batch": 1}], r"buckets\[1\] is a duplicate of b1-f8"),
        ([(1, 8)], "must give one size for each"),
    ],
)
def test_a_bad_bucket_is_named_with_its_field_and_value(buckets, message):
    with pytest.raises(AdapterError, match=message):
        BucketTable(buckets, AXES)
