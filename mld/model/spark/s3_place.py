"""Where in S3 something lies, as a property names it. Pure; the daemon and the Spark host read it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
#: What Spark, Delta's readers and URLs all take as it is.
_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*", re.ASCII)
_SCHEMES = ("s3", "s3a")


@dataclass(frozen=True, slots=True)
class S3Place:
    """A place in a bucket.

    Attributes:
        bucket: its name.
        prefix: of the keys, without slashes at its ends.
    """

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def below(self, name: str) -> S3Place:
        """A place in it."""
        return S3Place(self.bucket, f"{self.prefix}/{name}")

    def above(self) -> S3Place:
        """The place it is in; the prefix of the whole bucket is empty."""
        return S3Place(self.bucket, self.prefix.rpartition("/")[0])

    def key(self, path: str) -> str:
        """Of an object in it."""
        return f"{self.prefix}/{path}" if self.prefix else path


def is_s3(text: str) -> bool:
    """True for a URL of S3, a wrong one included."""
    scheme, mark, _ = text.strip().partition("://")
    return bool(mark) and scheme in _SCHEMES


def s3_place(text: str) -> S3Place:
    """``s3://bucket/prefix`` or ``s3a://bucket/prefix``, which mean the same.

    Raises:
        ValueError: it is none; the message says why.
    """
    _, _, rest = text.strip().partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket!r} is no name of a bucket")
    if not prefix:
        raise ValueError("it names the bucket alone, and a prefix in it is needed")
    if not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
        raise ValueError(
            f"the prefix {prefix!r} has other characters than letters, digits, _ . = - and single /"
        )
    return S3Place(bucket, prefix)
