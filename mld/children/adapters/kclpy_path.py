"""Where the stand-in for ``amazon_kclpy`` is.

Which of its folders children get in ``PYTHONPATH``.
"""

from __future__ import annotations

from pathlib import Path

from kcl_mld.children.rules.child_environment import PythonPath
from kcl_mld.config.config import Kclpy

#: Folder with the stand-in, a namespace package: any regular package on the path precedes it.
SHIM = Path(__file__).resolve().parents[2] / "shim"
#: Folder with the same stand-in as a regular package.
REGULAR = SHIM / "amazon_kclpy" / "regular"

PYTHON_PATHS = {
    Kclpy.AUTO: PythonPath(last=str(SHIM)),
    Kclpy.INSTALLED: PythonPath(),
    Kclpy.BUNDLED: PythonPath(first=str(REGULAR)),
}
