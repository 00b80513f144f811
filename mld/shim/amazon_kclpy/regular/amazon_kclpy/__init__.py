"""The stand-in as a regular package, which precedes an installed one on the path.

The folder above is what ``kclpy = bundled`` puts in front of ``PYTHONPATH``.
"""

import os

__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
