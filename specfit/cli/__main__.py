"""Where the program starts: as ``specfit`` and as ``python -m specfit.cli``."""

import sys

from specfit.cli import INTERRUPTED


def run() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends as one line, too."""
    try:
        from specfit.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; nothing was written.\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
