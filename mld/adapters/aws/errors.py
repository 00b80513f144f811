"""The one place where botocore's errors become those of ``mld.errors``.

What matters to a lease is what is known about the effect: refused (nothing changed), never sent
(nothing changed), or sent without a readable answer (unknown).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from botocore import exceptions as boto

from mld import errors

if TYPE_CHECKING:
    from botocore.client import BaseClient

#: Codes that say "too many requests", over all services in use.
#: Source: botocore's retries.standard.ThrottledRetryableChecker, and Kinesis' KMS codes.
_THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "KMSThrottlingException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)

_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "KMSAccessDeniedException",
        "NotAuthorized",
        "OptInRequired",
        "UnauthorizedOperation",
    }
)

#: Refusals of who asks, and not of what is asked for.
_CREDENTIALS_REFUSED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)

_BY_CODE: dict[str, type[errors.ServiceError]] = {
    "EntityNotFoundException": errors.NotFound,
    "ExpiredIteratorException": errors.ExpiredIterator,
    "InvalidArgumentException": errors.InvalidArgument,
    "LimitExceededException": errors.LimitExceeded,
    "ResourceInUseException": errors.InUse,
    "ResourceNotFoundException": errors.NotFound,
    **dict.fromkeys(_THROTTLED, errors.Throttled),
    **dict.fromkeys(_DENIED, errors.Denied),
    **dict.fromkeys(_CREDENTIALS_REFUSED, errors.CredentialsRefused),
}

#: Raised before the first byte of a request leaves. A failed TLS handshake is not among them:
#: botocore reports a TLS failure while reading the answer by the same class.
_NOT_SENT = (
    boto.ConnectTimeoutError,
    boto.EndpointConnectionError,
    boto.EndpointProviderError,
    boto.NoRegionError,
    boto.ProxyConnectionError,
    boto.CredentialRetrievalError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.SSOError,
    boto.TokenRetrievalError,
    boto.MetadataRetrievalError,
    boto.InvalidConfigError,
)


def service_error(error: boto.ClientError, *, writes: bool) -> errors.AwsError:
    """Our error for an answer that reports a failure.

    Args:
        error: botocore's.
        writes: the operation changes something. Then an HTTP 5xx says nothing about its effect.
    """
    operation = error.operation_name
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ConditionalCheckFailedException":
        return errors.ConditionFailed(operation, message, error.response.get("Item") or None)
    if code == "TransactionCanceledException":
        reasons = error.response.get("CancellationReasons") or ()
        codes = tuple(str(reason.get("Code", "None")) for reason in reasons)
        return errors.TransactionCanceled(operation, message, codes)
    kind = _BY_CODE.get(code)
    if kind is None and status == 429:
        kind = errors.Throttled
    if kind is None and status in {401, 403}:
        kind = errors.Denied
    if kind is None and status >= 500 and writes:
        return errors.UnknownOutcome(operation, code, message)
    return (kind or errors.ServiceError)(operation, code, message)


def client_error(error: Exception, operation: str, ca_file: str | None = None) -> errors.AwsError:
    """Our error for a call that got no answer.

    Args:
        error: botocore's; its messages hold addresses but no secrets.
        operation: API name, e.g. ``UpdateItem``.
        ca_file: see :func:`ca_file_of`; named where TLS fails, which itself names no file.
    """
    if was_not_sent(error):
        return not_sent(error, operation)
    message = str(error)
    if ca_file is not None and isinstance(error, boto.SSLError):
        message += (
            f" (certificates are trusted by {ca_file}: AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE or"
            " ca_bundle of the profile)"
        )
    return errors.UnknownOutcome(operation, type(error).__name__, message)


def was_not_sent(error: Exception) -> bool:
    """Whether nothing of a request left this process, by the error of botocore."""
    return isinstance(error, _NOT_SENT)


def ca_file_of(client: BaseClient) -> str | None:
    """The file of certificates that a client was told to trust; None = the usual ones."""
    # Not promised by botocore; it has no other place that tells.
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    verify = getattr(session, "_verify", None)
    return verify if isinstance(verify, str) else None


def not_sent(error: Exception, operation: str) -> errors.Unreachable:
    """Our error for a call of which nothing left this process; the arguments as above."""
    return errors.Unreachable(operation, type(error).__name__, str(error))


#: Where a page of a list begins, in the request, and where the next one does, in the answer.
_PAGES = (("NextToken", "NextToken"), ("ExclusiveStartKey", "LastEvaluatedKey"))


#: Members of a good answer without which it says nothing, and what each is; AWS always sends them.
#: Where a list or a state is missing, an empty one or "there is none" would be believed.
_DUE: dict[str, dict[str, type]] = {
    "DescribeTable": {"Table.TableStatus": str},
    "Scan": {"Items": list},
    "Query": {"Items": list},
    "DescribeStreamSummary": {
        "StreamDescriptionSummary.StreamARN": str,
        "StreamDescriptionSummary.StreamStatus": str,
    },
    "ListShards": {"Shards": list},
    "ListStreams": {"StreamNames": list},
    "ListTagsForStream": {"Tags": list},
    "GetShardIterator": {"ShardIterator": str},
    "DescribeStreamConsumer": {
        "ConsumerDescription.ConsumerARN": str,
        "ConsumerDescription.ConsumerStatus": str,
    },
    "GetCallerIdentity": {"Account": str},
}


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


def check_members(operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Refuse a good answer that lacks what it is asked for.

    Args:
        operation: API name, e.g. ``DescribeTable``.
        request: that was sent.
        answer: as parsed.

    Raises:
        BrokenAnswer: it does.
    """
    due = _DUE.get(operation, {})
    # What an update has left is part of its answer if that was asked for.
    if operation == "UpdateItem" and request.get("ReturnValues", "NONE") != "NONE":
        due = {"Attributes": dict}
    for path, kind in due.items():
        found: Any = answer
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, kind):
            raise BrokenAnswer(f"the answer has no {path}")


def _is_object(body: bytes) -> bool:
    """Whether it begins and ends like one; a look that costs nothing for 10 MB."""
    return body[:16].lstrip()[:1] == b"{" and body[-16:].rstrip()[-1:] == b"}"
