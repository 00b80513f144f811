"""What makes workers a fleet of KCL 3.x: leader, assignment, worker metrics, generations.

For others: ``model``, ``rules``, ``coordinator_state``, ``leader_lock``. ``kcl_mld.app`` uses
``lease_wiring`` and ``lease_coordinator``.

Decisions, in ``docs/decisions/``:

* fleet.md: Leading, assigning and reporting run and end together
* fleet.md: A leader counts the time of its lock by its own clock
* fleet.md: Leases move by number at once, and by load at Java's pace
"""
