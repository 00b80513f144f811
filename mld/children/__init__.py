"""The consumer of a held lease and its child process: lines, exchanges, checkpoints, failures.

For others: ``consuming.shard_consumer``, ``consuming.stream_context``, ``model``,
``ports``, ``rules``. ``adapters`` start processes, and are chosen by programs.

Decisions, in ``docs/decisions/``:

* children.md: A reason to stop always wins
* children.md: A guardian process ends what a dead daemon leaves behind
* children.md: A record that children fail at is found by halving, kept, and then skipped
"""
