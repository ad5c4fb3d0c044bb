import json
import subprocess
import sys

import numpy
import pytest
from typer.testing import CliRunner

import specfit
from specfit.cli.main import app
from specfit.core.errors import InvalidInputError

VERBS = ["demo", "decode", "record", "replay", "calibrate", "explain", "doctor"]
LISTS = [["show", "policies"], ["show", "caches"], ["show", "trace"]]
LISTS += [["check", what] for what in ("trace", "policy", "cost", "cache")]


@pytest.fixture
def run():
    return lambda *args: CliRunner().invoke(app, list(args))


@pytest.mark.parametrize("verb", [[v] for v in VERBS] + LISTS)
def test_every_verb_says_why_and_gives_an_example(run, verb):
    result = run(*verb, "--help")
    assert result.exit_code == 0
    assert f"Example: specfit {' '.join(verb)}" in " ".join(result.stdout.split())


def test_help_is_instant_and_light():
    program = (
        "import sys\n"
        "from specfit.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numba', 'pyarrow', 'numpy', 'matplotlib', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "[]", ran.stderr


def test_a_misspelt_verb_gets_a_suggestion(run):
    result = run("decod")
    assert result.exit_code == 2
    assert "decode" in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (InvalidInputError("a must be\n  b; got c."), 2, "error: a must be b; got c.\n"),
        (FileNotFoundError(2, "No such file or directory", "x.y"), 2, "error: cannot use x.y:"),
        (PermissionError(13, "Permission denied", "out"), 2, "cannot use out: Permission denied"),
        (ModuleNotFoundError("no torch", name="torch"), 2, "pip install 'specfit[torch]'"),
        (KeyboardInterrupt("3 prompts are kept"), 130, "interrupted; 3 prompts are kept."),
        (KeyboardInterrupt(), 130, "interrupted; nothing was written."),
    ],
)
def test_an_error_is_one_line_and_a_status(run, monkeypatch, error, status, said):
    def fail(*args):
        raise error

    monkeypatch.setattr("specfit.cli.show._print_registry", fail)
    result = run("show", "caches")
    assert result.exit_code == status
    assert said in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_bug_is_not_dressed_up_as_misuse(run, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError

    monkeypatch.setattr("specfit.cli.show._print_registry", fail)
    assert isinstance(run("show", "caches").exception, ZeroDivisionError)


def test_a_reader_that_leaves_early_is_no_error():
    program = f"{sys.executable} -m specfit.cli show policies --json | head -c 1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("{", "")


@pytest.mark.parametrize(("what", "name"), [("policies", "eagle3"), ("caches", "lru")])
def test_show_lists_what_there_is(run, what, name):
    table, lines = run("show", what), run("show", what, "--json")
    assert name in table.stdout
    assert f'"name": "{name}"' in lines.stdout
    assert table.exit_code == lines.exit_code == 0


def test_version(run):
    assert run("--version").stdout == f"specfit {specfit.__version__}\n"


def test_doctor_names_every_dependency(run):
    found = json.loads(run("doctor", "--json").stdout)
    assert found["numpy"] == numpy.__version__
    assert {"python", "torch", "memory that may be pinned", "bundled models"} <= set(found)
