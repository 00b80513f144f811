"""The lease table: its rows, who takes a lease, and until when a worker counts it as its own.

For others: ``model``, ``rules``, ``lease_store`` (each conditional write), ``lease_scan``.
``kcl_mld.fleet`` wires the other services.

Decisions, in ``docs/decisions/``:

* leases.md: A worker counts a lease as its own for 98 % of the failover time, from the request on
* leases.md: A write without an answer is read back, then repeated
* leases.md: Conditions name both owners of a lease beside its counter
"""
