"""Which worker of a 3.x fleet reads which lease: the leader's decision, without any effect.

``planning.plan_assignment`` is the entry; what a plan needs to know is a ``looks.FleetView``, what
the leader remembers between two looks a ``looks.FleetMemory``.
"""
