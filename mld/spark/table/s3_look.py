"""Whether a place in S3 can hold a table, found out before a server is started.

What a worker does there is done once: list, make an object that must be new, make it again, read
and remove it. The second time must fail, since each commit of a Delta table rests on that.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from mld.model.spark.addresses import is_s3, s3_place
from mld.spark.errors import SinkRefused
from mld.spark.table.s3_access import PENDING, TAKEN, S3Access, StoreError

if TYPE_CHECKING:
    from mld.model.spark.addresses import S3Place
    from mld.spark.config import SparkConfig
    from mld.spark.table.s3_access import BucketPlace

_DENIED = frozenset({"AccessDenied", "403", "Forbidden"})
_BAD_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
_NEEDED = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject below"


def require_buckets(config: SparkConfig) -> dict[str, BucketPlace]:
    """See whether every place in S3 that the file names can be used; how their buckets are reached.

    Raises:
        SinkRefused: one can't; the message names the key and says what to do.
    """
    found: dict[str, BucketPlace] = {}
    for key, text in (
        ("spark.sink.path", config.sink_path),
        ("spark.function.deadletter.path", config.letters_path),
        ("spark.deadletter.path", config.deadletter_path),
    ):
        if text is None or not is_s3(text):
            continue
        try:
            place = s3_place(text)
            found[place.bucket] = _examined(place, S3Access(place.bucket))
        except (OSError, ValueError, SinkRefused) as error:
            raise SinkRefused(f"{key}={text}: {error}") from error
    return found


def _examined(place: S3Place, access: S3Access) -> BucketPlace:
    reach = access.reach
    key = place.key(f"{PENDING}/probe-{uuid.uuid4().hex}")
    try:
        next(access.list(place.key(f"{PENDING}/")), None)
        access.put(key, b"", is_new=True)
        is_exclusive = _refuses(access, key)
        access.get(key)
        access.delete(key)
    except StoreError as error:
        raise SinkRefused(f"{error}{_advice(error.code, place)}") from error
    if not is_exclusive:
        raise SinkRefused(
            f"the store ignores If-None-Match, so two workers could write the same version of a "
            f"table: use one that has conditional writes, as Amazon S3 and MinIO have{_at(reach)}"
        )
    return reach


def _refuses(access: S3Access, key: str) -> bool:
    """True if an object is not made that is there."""
    try:
        access.put(key, b"", is_new=True)
    except StoreError as error:
        if error.code in TAKEN:
            return True
        raise
    return False


def _advice(code: str, place: S3Place) -> str:
    if code in _DENIED:
        return f": allow {_NEEDED} {place}/"
    if code in _BAD_KEYS:
        return ": the credentials are wrong or have expired; renew them"
    return ""


def _at(reach: BucketPlace) -> str:
    return f" (endpoint {reach.endpoint})" if reach.endpoint else ""
