"""What commands check and change: ``doctor``, permissions, steering of leases, moves to other keys.

For others: ``lease_steering``, ``lease_migration``, ``rules``, all of them for commands.

Decisions, in ``docs/decisions/``:

* leases.md: People change a held lease through its holder, a row at rest by themselves
* leases.md: A lease table of the same name may be another table
* leases.md: A lease moves to another key in three writes that can be interrupted anywhere
"""
