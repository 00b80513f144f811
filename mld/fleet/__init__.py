"""What 3.x fleets add: the leader, worker metrics, lease assignment, the upgrade from 2.x."""
