"""What pages say of a failed call."""

from __future__ import annotations

import pytest

from kcl_mld.errors import (
    ConditionFailed,
    CredentialsRefused,
    Denied,
    InUse,
    LimitExceeded,
    MalformedData,
    NameNotKnown,
    NotFound,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.signals.rules.remedies import (
    SHOWN_CHARACTERS,
    failed_on_table,
    failed_reading,
    shown_error,
    table_remedy,
)

THROTTLED = "ProvisionedThroughputExceededException"


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (Throttled("GetRecords", THROTTLED), "who else reads the shard"),
        (LimitExceeded("ListShards", "LimitExceededException"), "what else calls ListShards"),
        (LimitExceeded("SubscribeToShard", "LimitExceededException"), "ends by itself"),
        (Denied("GetRecords", "AccessDeniedException"), "allow kinesis:GetRecords"),
        (Denied("GetRecords", "KMSAccessDeniedException"), "allow kms:Decrypt"),
        (CredentialsRefused("GetRecords", "ExpiredTokenException"), "renew the credentials"),
        (NotFound("GetRecords", "ResourceNotFoundException"), "deleted or created again"),
        (InUse("SubscribeToShard", "ResourceInUseException"), "who else reads the stream"),
        (NameNotKnown("GetRecords", "EndpointConnectionError"), "see DNS"),
        (Unreachable("GetRecords", "ConnectTimeoutError"), "the route to the endpoint"),
        (UnknownOutcome("GetRecords", "ReadTimeoutError"), "no answer arrives"),
    ],
)
def test_each_kind_of_failed_reading_has_its_remedy(error, todo):
    failed = failed_reading(error)
    assert todo in failed.todo
    assert failed.error.startswith(f"{error.code} ({error.operation})")
    assert ("allow" in failed.todo) is (type(error) is Denied)


def test_what_nobody_can_help_has_no_remedy():
    assert failed_reading(MalformedData("the answer can't be read")).todo == ""
    assert failed_reading(ValueError()).error == "ValueError"


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (NotFound("Scan", "ResourceNotFoundException"), "the table is missing"),
        (Denied("Scan", "AccessDeniedException"), "allow dynamodb:Scan on this table"),
        (CredentialsRefused("Scan", "RequestExpired"), "set the clock of this machine right"),
        (Throttled("Scan", "ThrottlingException"), "more capacity"),
        (UnknownOutcome("Scan", "ReadTimeoutError"), "no answer arrives"),
        (MalformedData("the item can't be read"), "delete the item"),
    ],
)
def test_each_failure_on_a_table_has_its_remedy(error, todo):
    assert todo in failed_on_table(error).todo
    sentence = table_remedy(error)
    assert sentence.startswith(". ")
    assert sentence[2].isupper()


def test_a_condition_that_failed_has_no_remedy():
    assert table_remedy(ConditionFailed("UpdateItem")) == ""


def test_no_account_and_no_secret_is_shown_and_no_long_text():
    message = (
        "User: arn:aws:iam::123456789012:user/ann is not authorized with AKIAIOSFODNN7EXAMPLE at"
        " https://ann:hunter2@host/ " + "x" * 900
    )
    shown = shown_error(Denied("GetRecords", "AccessDeniedException", message))
    for hidden in ("123456789012", "AKIAIOSFODNN7EXAMPLE", "hunter2"):
        assert hidden not in shown
    assert len(shown) == SHOWN_CHARACTERS
    number = "49590338271490256608559692538361571095921575989136588898"
    assert number in shown_error(MalformedData(f"record {number} can't be read"))
