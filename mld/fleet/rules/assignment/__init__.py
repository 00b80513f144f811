"""Which worker of a 3.x fleet reads which lease: the leader's decision, without any effect.

``planning.plan_assignment`` is the entry; the input of a plan is a ``looks.FleetView``, the
leader's memory between two scans a ``looks.FleetMemory``.
"""
