"""kcl-mld: the MultiLangDaemon of the Kinesis Client Library, without a JVM."""

__version__ = "1.0.0"
