"""Make `.venv` ready: create it, install specfit with the given extras, leave a stamp.

Standard library only, in a syntax that old Pythons read, so that the message about a wrong version
reaches whoever needs it. Pip's output is one moving line; it is shown in full when pip fails.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 13)
VENV = Path(".venv")
LOG = VENV / "install.log"
LINE_EVERY_S = 15  # where there is no terminal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", required=True, help="comma-separated extras of specfit")
    parser.add_argument("--stamp", required=True, type=Path, help="file to write when done")
    options = parser.parse_args()
    started = time.monotonic()
    if not works(VENV / "bin" / "python"):
        create(find_python())
    install(options.extras, started)
    options.stamp.write_text(options.extras + "\n")
    say(f"set-up done in {time.monotonic() - started:.0f} s")


def find_python():
    """Return a Python that specfit supports: this one, or else the newest on the path."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and works(found):
            return found
    sys.exit(
        f"specfit needs Python 3.11, 3.12 or 3.13; this is {sys.version.split()[0]} and no other "
        f"was found. Install one, or name it: make PYTHON=/path/to/python3.11"
    )


def works(python):
    """Return whether this interpreter starts."""
    try:
        return subprocess.run([str(python), "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def create(python):
    """Create an empty virtual environment."""
    say(f"set-up: creating {VENV} with {python}")
    command = [python, "-m", "venv", "--clear", str(VENV)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(
            f"{python} cannot create a virtual environment. On Debian and Ubuntu install "
            f"python3-venv.\n{made.stdout}{made.stderr}"
        )


def install(extras, started):
    """Install specfit, editable, at the versions of constraints.txt."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "-c", "constraints.txt"]
    command += ["-e", f".[{extras}]"]
    with LOG.open("w") as log:
        pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        shown = started
        for line in pip.stdout:
            log.write(line)
            doing = what_it_does(line)
            if doing:
                shown = show(f"set-up, {time.monotonic() - started:.0f} s: {doing}", shown)
    if pip.wait() != 0:
        say(LOG.read_text())
        sys.exit(f"the set-up failed; pip's words are above and in {LOG}")


def what_it_does(line):
    """Return what a line of pip's output says it does, or nothing."""
    words = line.split()
    if line.startswith("Installing collected packages"):
        return f"unpacking {len(words) - 3} packages"
    if len(words) > 1 and words[0] in ("Collecting", "Downloading"):
        return f"{words[0].lower()} {words[1].rpartition('/')[2]}"
    return None


def show(text, shown):
    """Show what goes on, in place on a terminal and now and then elsewhere; return when it was."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text[:79])
        sys.stderr.flush()
    elif time.monotonic() - shown >= LINE_EVERY_S:
        say(text)
        return time.monotonic()
    return shown


def say(text):
    """Write a line that stays."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}{text}\n")


if __name__ == "__main__":
    main()
