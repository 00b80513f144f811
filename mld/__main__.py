"""Run the daemon with ``python -m mld``."""

from mld.cli import main

if __name__ == "__main__":
    main()
