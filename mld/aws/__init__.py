"""Calls to AWS: interfaces without botocore in ``ports``, and the clients that make the calls.

For other rooms: ``ports``, ``whole_answers``. ``clients`` and its imports are for programs.

Decisions, in ``docs/decisions/``:

* aws.md: Timeouts, retries and pauses are ours
* aws.md: An answer must be complete within four timeouts
* dynamodb-streams.md: The stream of a table is a second service behind one interface
"""
