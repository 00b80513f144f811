"""How messages show counts and times."""

import pytest

from kcl_mld.kernel.model.text import lasted


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (14.4, "14 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (5400 * 1.5, "2.2 h"),
        (86_400, "24 h"),
        (3 * 86_400, "3 d"),
        (2.5 * 86_400, "2.5 d"),
    ],
)
def test_a_time_that_passed_is_shown_in_a_fitting_unit(seconds, shown):
    assert lasted(seconds) == shown
