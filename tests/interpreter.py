"""Whether an interpreter can make this project's environment: ``python tests/interpreter.py``.

Prints what is missing and how to get it, and exits with 1. Interpreters that are too old get so far
too, down to 3.6.
"""

import os
import sys

OLDEST = (3, 11)


def missing(version, has_module, debian=False):
    """What to do first, one sentence; None = nothing.

    Args:
        version: of the interpreter, as ``sys.version_info`` begins.
        has_module: whether a module of a name can be imported.
        debian: the packages are those of Debian or one of its children.
    """
    name = f"Python {version[0]}.{version[1]}"
    if tuple(version[:2]) < OLDEST:
        return (
            f"{name} is too old: Python 3.11 or newer is needed. If it is there under another name, "
            f"say so: make PYTHON=python3.13"
        )
    lacking = " and ".join(module for module in ("venv", "ensurepip") if not has_module(module))
    if not lacking:
        return None
    if debian:
        remedy = f"Install it first: apt-get install python{version[0]}.{version[1]}-venv"
    else:
        remedy = "Install a complete Python, or name another one: make PYTHON=python3.13"
    return f"{name} is here without {lacking}, so it cannot make an environment. {remedy}"


def _has_module(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _is_debian():
    return os.path.exists("/etc/debian_version")


if __name__ == "__main__":
    sys.exit(missing(sys.version_info, _has_module, _is_debian()))
