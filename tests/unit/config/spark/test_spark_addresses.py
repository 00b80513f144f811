"""Places in S3, one in another."""

import pytest

from kcl_mld.config.spark.addresses import s3_place


@pytest.mark.parametrize(
    ("text", "above", "key"),
    [
        ("s3://bucket/tables/clicks", "s3://bucket/tables", "tables/kcl-mld"),
        ("s3a://bucket/clicks/", "s3://bucket/", "kcl-mld"),
    ],
)
def test_what_is_above_a_place_has_its_keys(text, above, key):
    found = s3_place(text).above()
    assert str(found) == above
    assert found.key("kcl-mld") == key


def test_what_is_below_a_place_is_in_it():
    assert s3_place("s3://bucket/tables").below("clicks").above() == s3_place("s3://bucket/tables")
