"""Small questions to a lease."""

from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.model.lease import HeldLease
from tests.fakes.lease_world import lease


def test_a_lease_is_finished_when_its_checkpoint_is_shard_end():
    assert lease(checkpoint=SHARD_END).is_finished
    assert not lease().is_finished
    assert not lease(checkpoint=None).is_finished


def test_other_shards_of_its_stream_have_keys_of_the_same_kind():
    assert lease().key_of("shardId-9") == "shardId-9"
    assert lease(stream_identifier="1:s:2").key_of("shardId-9") == "1:s:2:shardId-9"


def test_in_a_hand_off_the_old_owner_still_writes():
    assert lease(lease_owner="new", checkpoint_owner="old").actual_owner == "old"
    assert lease(lease_owner="new").actual_owner == "new"
    assert lease().actual_owner is None


def test_a_held_lease_carries_row_token_and_end_of_belief():
    held = HeldLease(lease(), "token", 12.5)
    assert (held.lease, held.token, held.valid_until) == (lease(), "token", 12.5)
