"""What a function with several outputs may return."""

import pytest

from kcl_mld.spark.plans.one_call import fault_of_outputs, frames_of, not_of_spark

NAMES = ("clicks", "errors")


class Frame:
    """As much of a DataFrame as is looked at."""

    def withColumn(self, name, column):  # noqa: N802 - Spark's name
        return self


@pytest.mark.parametrize("names", [(), ("clicks",), ("errors",), NAMES])
def test_any_of_the_names_may_be_missing(names):
    assert fault_of_outputs({name: Frame() for name in names}, NAMES) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "is None; spark.sink.outputs names clicks, errors: return a dict of DataFrames"),
        (Frame(), "is of type Frame; spark.sink.outputs names clicks, errors: return a dict"),
        ({"click": Frame()}, "has the output 'click', but spark.sink.outputs names clicks, errors"),
        ({1: Frame()}, "has the output 1, but"),
        ({"clicks": None}, "has None for 'clicks': leave out an output that has no rows"),
        ({"clicks": [1]}, "has, for 'clicks', of type list; return a DataFrame of Spark"),
    ],
)
def test_what_it_may_not_return_is_told_with_what_to_do(answer, why):
    assert fault_of_outputs(answer, NAMES).startswith(why)


def test_a_dict_where_no_outputs_are_named_is_told_what_it_needs():
    assert "their names in spark.sink.outputs" in not_of_spark({"clicks": Frame()})


def test_frames_are_in_the_order_of_their_names():
    one, two = Frame(), Frame()
    assert frames_of({"b": one, "a": two}) == [two, one]
    assert frames_of(one) == [one]
    assert frames_of(None) == []
