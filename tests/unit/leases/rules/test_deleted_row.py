"""What is said of a lease whose row was deleted."""

import pytest

from kcl_mld.kernel.model.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.rules.deleted_row import creating_command, told_deleted
from tests.fakes.lease_world import lease

KEY = lease().lease_key


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        (ExtendedSequenceNumber("49"), "--after-sequence-number 49/0"),
        (ExtendedSequenceNumber("49", 3), "--after-sequence-number 49/3"),
        (TRIM_HORIZON, "--to-trim-horizon"),
    ],
)
def test_the_command_makes_the_row_again_where_it_stood(checkpoint, place):
    command = f"kcl-mld leases reset FILE {KEY} {place} --create --execute"
    assert creating_command(lease(checkpoint=checkpoint)) == command
    said = told_deleted(lease(checkpoint=checkpoint))
    assert said.startswith(f"The row of lease {KEY} was deleted; its checkpoint was {checkpoint}. ")
    assert said.endswith(command)


@pytest.mark.parametrize("checkpoint", [LATEST, AT_TIMESTAMP, None])
def test_where_nothing_was_checkpointed_there_is_nothing_to_go_back_to(checkpoint):
    assert creating_command(lease(checkpoint=checkpoint)) is None
    assert "Nothing was checkpointed" in told_deleted(lease(checkpoint=checkpoint))
