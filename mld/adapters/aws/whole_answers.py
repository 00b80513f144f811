"""Whether a good answer arrived whole, and leads on: looks that cost nothing for 10 MB.

What it must have is looked at in :mod:`mld.adapters.aws.answer_shapes`.
"""

from __future__ import annotations

import zlib
from typing import Any

#: Where a page of a list begins, in the request, and where the next one does, in the answer.
_PAGES = (("NextToken", "NextToken"), ("ExclusiveStartKey", "LastEvaluatedKey"))


class BrokenAnswer(Exception):
    """An answer that arrived cut, damaged, or from somebody else than AWS."""


def check_whole(
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    operation_model: Any = None,
    **_: Any,
) -> None:
    """Refuse a good answer whose body is not what the service sent; a ``before-parse`` hook.

    botocore accepts a body shorter than its Content-Length, and reads a successful answer that is
    no JSON (a proxy's page, a cut body) as one without any members. A table scan would then see no
    lease, and a lost write would look like a done one.

    Raises:
        BrokenAnswer: the length or the checksum differs, or JSON was promised and did not come.
    """
    headers, body = response_dict["headers"], response_dict["body"]
    if response_dict["status_code"] >= 300 or not isinstance(body, bytes):
        return
    if customized_response_dict:  # a more specific hook has looked already and taken the body away
        return
    length, checksum = headers.get("content-length"), headers.get("x-amz-crc32")
    # As texts: what is no number at all (a proxy may repeat a header) differs, too.
    if length is not None and length.strip() != str(len(body)):
        raise BrokenAnswer(f"{len(body)} of {length} bytes arrived")
    if checksum is not None and checksum.strip() != str(zlib.crc32(body)):
        raise BrokenAnswer("the checksum differs")
    kind = str(headers.get("content-type", "")).lower()
    # Operations that answer nothing (of CloudWatch, of consumers) have an empty body.
    is_due = bool(body) or (operation_model is not None and operation_model.output_shape)
    if is_due and "xml" not in kind and "cbor" not in kind and not _is_object(body):
        raise BrokenAnswer(f"not a JSON object ({kind or 'no content type'})")


def check_page(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Refuse a page that says to go on where it began: whoever reads on would never end.

    Raises:
        BrokenAnswer: it does.
    """
    for begins, goes_on in _PAGES:
        place = request.get(begins)
        if place is not None and answer.get(goes_on) == place:
            raise BrokenAnswer(f"the page goes on where it began ({goes_on})")


def _is_object(body: bytes) -> bool:
    """Whether it begins and ends like one; a look that costs nothing for 10 MB."""
    return body[:16].lstrip()[:1] == b"{" and body[-16:].rstrip()[-1:] == b"}"
