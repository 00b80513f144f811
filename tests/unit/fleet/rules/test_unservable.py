"""Which fleets a worker refuses to join."""

from kcl_mld.fleet.rules.unservable import refuse_two_fleets, refuse_unreadable


def test_what_cannot_be_understood_is_refused():
    said = str(refuse_unreadable("Migration3.0", "cv is 'CLIENT_VERSION_4X', which is not known"))
    for expected in ("item Migration3.0", "CLIENT_VERSION_4X", "Keep the Java daemon"):
        assert expected in said


def test_two_fleets_with_one_set_of_leases_are_refused_with_what_to_do():
    said = str(refuse_two_fleets(["state", "leases"]))
    assert "tables state and leases" in said
    assert "Stop every worker that is older than 3.5" in said
