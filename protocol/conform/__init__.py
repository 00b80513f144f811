"""The conformance kit: tests any daemon or child of the multilang protocol from the command line.

``items`` holds the requirements, ``report`` the verdicts, ``child`` plays the daemon to a child
process, ``daemon`` runs a daemon against an embedded AWS with scripted children. This package does
I/O; the protocol proper does not.
"""
