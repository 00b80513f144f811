"""Run the daemon with ``python -m kcl_mld``."""

from kcl_mld.cli import main

if __name__ == "__main__":
    main()
