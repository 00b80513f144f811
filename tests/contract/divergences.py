"""Where an emulator is known to differ from the service: (target, test) -> how.

Each row is an expected failure of exactly that test on that target, or of one case of it, which
follows the test's name in brackets.
"""

from __future__ import annotations

_AS_SENT = "numbers come back as they were sent"
_NEVER_REFUSED = "a subscription is never refused"
_NOT_FOUND = "ResourceNotFoundException instead of InvalidArgumentException"

KNOWN: dict[tuple[str, str], str] = {
    ("moto", "test_numbers_come_back_in_normal_form"): _AS_SENT,
    ("moto", "test_bad_items_are_refused[double]"): "a set may hold a value twice",
    (
        "moto",
        "test_legacy_updates_work_under_legacy_conditions",
    ): "ALL_OLD on a failed condition works with condition expressions only",
    (
        "moto",
        "test_legacy_and_modern_parameters_do_not_mix",
    ): "both kinds of parameters are accepted together",
    (
        "moto",
        "test_an_index_that_is_not_there_cannot_be_asked",
    ): "ResourceNotFoundException instead of ValidationException",
    (
        "moto",
        "test_a_transaction_repeated_under_its_token_is_done_once",
    ): "ClientRequestToken is ignored",
    (
        "dynamodb-local",
        "test_backups_can_be_switched_on",
    ): "UpdateContinuousBackups is unknown",
    (
        "dynamodb-local",
        "test_the_filter_lists_the_children_of_a_shard",
    ): "ShardFilter is ignored: all shards are listed",
    ("dynamodb-local", "test_iterators_start_at_a_time"): "AT_TIMESTAMP is unknown",
    (
        "dynamodb-local",
        "test_iterators_that_make_no_sense_are_refused[letters]",
    ): "InternalFailure instead of ValidationException",
    ("kinesis-local", "test_bad_puts_are_refused"): "501 records in one request are taken",
    ("kinesis-local", "test_a_foreign_sequence_number_is_refused[0]"): _NOT_FOUND,
    ("kinesis-local", "test_a_foreign_sequence_number_is_refused[12345]"): _NOT_FOUND,
    ("kinesis-local", "test_a_foreign_sequence_number_is_refused[made up]"): _NOT_FOUND,
    ("kinesis-local", "test_a_malformed_iterator_is_refused"): "HTTP 500",
    (
        "kinesis-local",
        "test_reshards_that_make_no_sense_are_refused",
    ): "a shard may be split at its own first key",
    (
        "kinesis-local",
        "test_at_trim_horizon_selects_the_shards_open_at_the_start",
    ): "gives every shard within retention, children beside their parents",
    (
        "kinesis-local",
        "test_a_subscription_ends_with_its_shard",
    ): "a subscription to a closed shard goes on with empty events",
    (
        "kinesis-local",
        "test_a_second_subscription_is_refused_for_five_seconds",
    ): _NEVER_REFUSED,
    ("kinesis-local", "test_a_subscription_to_nothing_is_refused"): _NEVER_REFUSED,
}
