"""The files of recorded conversations."""

import pytest

from kcl_mld.children.adapters.recording import recording_name


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "child"),
        ({"KCL_LEASE_KEY": "shardId-1"}, "shardId-1"),
        ({"KCL_LEASE_KEY": "1:s:2:shardId-1"}, "1_s_2_shardId-1"),
        ({"KCL_LEASE_KEY": "shardId-1", "KCL_MLD_CHILD": "3"}, "shardId-1-child-3"),
    ],
)
def test_a_file_has_the_lease_and_which_of_several_children_it_is(env, name):
    assert recording_name(env) == name
