"""The one place where botocore's errors become those of ``kcl_mld.errors``.

What matters to a lease is what is known about the effect: refused (nothing changed), never sent
(nothing changed), or sent without a readable answer (unknown).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from botocore import exceptions as boto

from kcl_mld import errors
from kcl_mld.aws.whole_answers import is_item
from kcl_mld.kernel.adapters.system import limit_advice
from kcl_mld.kernel.model.masking import printable

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.session import Session

#: Set by :func:`note_ca_file`.
_ca_files: WeakKeyDictionary[BaseClient, str] = WeakKeyDictionary()

#: Codes for "too many requests" of all services in use.
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

#: Refusals of the caller, not of the request.
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
    "TrimmedDataAccessException": errors.TrimmedData,
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

#: Texts of the resolvers of Linux, macOS and Windows; urllib3 has a class for it since 2.0 only.
_NAME_NOT_KNOWN = re.compile(
    r"Failed to resolve|getaddrinfo failed|Name or service not known|"
    r"Temporary failure in name resolution|nodename nor servname|No address associated"
)


def service_error(error: boto.ClientError, *, writes: bool) -> errors.AwsError:
    """Our error for an answer that reports a failure.

    Args:
        writes: the operation changes something, so its effect is unknown after an HTTP 5xx.
    """
    operation = error.operation_name
    details = error.response.get("Error", {})
    code, message = _cut(details.get("Code", "")), _cut(details.get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ConditionalCheckFailedException":
        item = error.response.get("Item")
        # A caller that gets none asks for it, and learns if that fails.
        return errors.ConditionFailed(operation, message, item if is_item(item) else None)
    if code == "TransactionCanceledException":
        reasons = error.response.get("CancellationReasons") or ()
        codes = tuple(str((reason or {}).get("Code", "None")) for reason in reasons)
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
    message = _cut(error)
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
    """The file of certificates that a client trusts; None = the usual ones."""
    return _ca_files.get(client)


def note_ca_file(client: BaseClient, session: Session) -> None:
    """Remember which file of certificates a session has its clients trust."""
    ca_file = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if isinstance(ca_file, str):
        _ca_files[client] = ca_file


def not_sent(error: Exception, operation: str) -> errors.Unreachable:
    """Our error for a call of which nothing left this process; the arguments as above."""
    # Only the cause shows that there are no more files, or that the name is unknown.
    cause = str(getattr(error, "kwargs", {}).get("error", ""))
    kind, advice = errors.Unreachable, limit_advice(cause)
    if _NAME_NOT_KNOWN.search(cause):
        kind, advice = errors.NameNotKnown, " (the name of the host can't be resolved)"
    return kind(operation, type(error).__name__, _cut(error) + advice)


def _cut(text: object) -> str:
    """A foreign text as one line of bounded length, because it is logged and searched often."""
    return printable(str(text))
