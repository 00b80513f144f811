"""How many records are computed at once, once a result was too large."""

import itertools

from kcl_mld.spark.jobs.part_size import PartSize


def calls(size, records, most):
    """Sizes of the calls for one batch, of whose records so many are brought at once."""
    found = []
    while records:
        count = min(records, size.records or records)
        found.append(count)
        if count > most:
            size.too_large(count)
        else:
            size.went_well(count)
            records -= count
    return found


def test_the_second_batch_begins_at_the_size_that_was_good_for_the_first():
    size = PartSize()
    assert calls(size, 1000, 400) == [1000, 500, 250, 250, 250, 250]
    assert calls(size, 1000, 400) == [250] * 4


def test_a_larger_size_is_tried_seldomer_the_more_often_it_was_too_large():
    size = PartSize()
    found = calls(size, 100_000, 399)
    failed = [n for n, count in enumerate(found) if count > 399]
    pauses = [later - earlier for earlier, later in itertools.pairwise(failed)]
    assert pauses[-1] > 64
    assert sum(found) < 1.1 * 100_000 + 2 * 100_000


def test_what_is_good_again_grows_back_to_the_whole_batch():
    size = PartSize()
    calls(size, 10_000, 1)  # one record of which much was made
    needed = 0
    while (size.records or 0) < 10_000:
        needed += 1
        size.went_well(size.records)
    assert needed < 200


def test_a_size_that_was_good_and_is_too_large_now_is_halved():
    size = PartSize()
    calls(size, 1000, 400)
    assert calls(size, 500, 130) == [250, 125, 125, 125, 125]


def test_a_part_with_the_last_records_says_nothing_of_the_size():
    size = PartSize()
    calls(size, 1000, 400)
    for _ in range(100):
        size.went_well(10)
    assert size.records == 250


def test_only_the_first_result_that_is_too_large_is_told():
    size = PartSize()
    assert size.too_large(100)
    assert not size.too_large(50)
