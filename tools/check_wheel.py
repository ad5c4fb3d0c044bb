"""Build sdist and wheel, install the wheel in an empty environment, and use it far from here.

Standard library only. The wheel is built from the unpacked sdist, so both are held to it. Without
torch the program still replays and explains: `--without-torch` checks that on a trace recorded by
an earlier check, kept with `--keep`.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST_BYTES = 20e6
PROMPT = "It was a dark night, and the road"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter to install for")
    parser.add_argument("--without-torch", action="store_true", help="the simulator alone")
    parser.add_argument("--trace", type=Path, help="trace to replay where nothing can be recorded")
    parser.add_argument("--keep", type=Path, help="folder to keep what was recorded in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specfit-wheel-") as name:
        folder = Path(name)
        wheel = build(folder, options.python)
        python = install(folder, options.python, wheel, with_torch=not options.without_torch)
        work = folder / "empty"
        work.mkdir()
        trace = options.trace.resolve() if options.trace else None
        use(python, work, trace)
        if options.keep:
            (work / "trace").rename(options.keep)


def build(folder, python):
    """Return the wheel, built from the sdist."""
    tools = folder / "build-tools"
    run([python, "-m", "venv", tools])
    pip(tools, "hatchling>=1.27")
    hatchling = [tools / "bin" / "python", "-m", "hatchling", "build", "-d", folder / "dist"]
    run([*hatchling, "-t", "sdist"], cwd=ROOT)
    [sdist] = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [source] = (folder / "unpacked").iterdir()
    run([*hatchling, "-t", "wheel"], cwd=source)
    [wheel] = (folder / "dist").glob("*.whl")
    for path in (sdist, wheel):
        size = path.stat().st_size
        say(f"{path.name}: {size / 1e6:.1f} MB")
        if size > LARGEST_BYTES:
            sys.exit(f"{path.name} must be below {LARGEST_BYTES / 1e6:.0f} MB.")
    return wheel


def install(folder, python, wheel, *, with_torch):
    """Return the interpreter of a new environment with the wheel and nothing else of ours."""
    environment = folder / "environment"
    run([python, "-m", "venv", environment])
    extra = "[torch]" if with_torch else ""
    pip(environment, f"specfit{extra} @ {wheel.as_uri()}", "-c", ROOT / "constraints.txt")
    return environment / "bin" / "python"


def use(python, work, trace):
    """Record, replay, explain and decode in an empty folder; only replay and explain a trace."""
    found = json.loads(specfit(python, work, "doctor", "--json"))
    say(f"specfit {found['specfit']} on Python {found['python'].split()[0]}, {found['commit']}")
    where = output([python, "-c", "import specfit; print(specfit.__file__)"], work)
    assert str(python.parent.parent) in where, f"not the installed package: {where}"
    if trace is None:
        trace = "trace"
        plans = ["--plans", "specfit", "--plans", "eagle3:depth=3,top_k=2"]
        given = ["--prompt", PROMPT, "-n", "12"]
        specfit(python, work, "record", "-o", trace, *given, *plans)
        text = specfit(python, work, "decode", *given)
        assert len(text.split()) > 4, f"no text: {text!r}"
        say(f"decoded: {text.strip()!r}")
    rows = specfit(
        python, work, "replay", trace, "-p", "autoregressive", "-p", "specfit", "--json"
    )  # fmt: skip
    table = [json.loads(line) for line in rows.splitlines()]
    speeds = {row["policy"]: row["simulated_tokens_per_s"] for row in table}
    assert set(speeds) == {"autoregressive", "specfit"}, speeds
    say(f"replayed: {speeds}, tokens a second, simulated")
    specfit(python, work, "explain", trace, "-o", "cycle.html")
    assert (work / "cycle.html").stat().st_size > 20_000, "the page is empty"
    say("explained: cycle.html written")


def specfit(python, work, *arguments):
    return output([python.parent / "specfit", *arguments], work)


def output(command, work):
    """Return what a command prints; nothing of this checkout is on its path."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    ran = subprocess.run(
        list(map(str, command)), cwd=work, env=environment, capture_output=True, text=True
    )
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def pip(environment, *arguments):
    python = environment / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments])


def run(command, cwd=None):
    ran = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stdout}{ran.stderr}")


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    main()
