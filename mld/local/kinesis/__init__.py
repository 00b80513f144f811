"""A Kinesis Data Streams of our own: deterministic, in memory, without I/O.

:class:`~kcl_mld.local.kinesis.model.KinesisModel` answers the operations; it reads time from a clock
handed in and never sleeps. ``kcl_mld.local.server`` puts it behind HTTP, ``tests.fakes.fake_kinesis``
behind the port that the daemon's services use.
"""

from kcl_mld.local.kinesis.faults import KinesisFault
from kcl_mld.local.kinesis.model import KinesisModel, KinesisSettings

__all__ = ["KinesisFault", "KinesisModel", "KinesisSettings"]
