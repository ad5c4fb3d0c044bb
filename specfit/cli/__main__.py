"""Where the program starts: as ``specfit`` and as ``python -m specfit.cli``."""

import atexit
import signal
import sys

from specfit.cli import INTERRUPTED


def run() -> None:
    """Run the command line.

    Ctrl-C while it is still being imported ends as one line, too. Once all is done and only Python
    clears up, it changes nothing: neither the status nor what was said.
    """
    try:
        from specfit.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; nothing was written.\n")
        sys.exit(INTERRUPTED)
    finally:
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    run()
