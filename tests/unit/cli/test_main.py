import json
import os
import re
import shlex
import subprocess
import sys

import numpy
import pytest
import typer.main
from typer.testing import CliRunner

import specfit
from specfit.backends.installation import cuda_in_torch
from specfit.cli import doctor
from specfit.cli.__main__ import run as start
from specfit.cli.main import app
from specfit.core.errors import InvalidInputError

NO_ROWS = {"new", "report"}
"""Verbs whose result is files."""


def verbs(command=None, path=()):
    """Yield every verb as the words one types, with its command."""
    command = command or typer.main.get_command(app)
    for name, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from verbs(child, (*path, name))
        else:
            yield (*path, name), child


VERBS = dict(verbs())


@pytest.fixture
def run():
    return lambda *args: CliRunner().invoke(app, list(args))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_says_why_and_gives_an_example(run, verb):
    result = run(*verb, "--help")
    assert result.exit_code == 0
    assert f"Example: specfit {' '.join(verb)}" in " ".join(result.stdout.split())


def test_the_example_of_a_verb_can_be_typed():
    for words, command in VERBS.items():
        example = re.search(r"Example: specfit (.+)", command.help)[1]
        arguments = shlex.split(example)[len(words) :]
        command.make_context(command.name, arguments)


def test_every_verb_with_a_result_gives_it_as_json():
    without = [
        words
        for words, command in VERBS.items()
        if words[0] not in NO_ROWS and "--json" not in {o for p in command.params for o in p.opts}
    ]
    assert without == []


def test_help_is_instant_and_light():
    """Processor time, best of five, in that of importing typer alone: neither a busy machine nor a
    slow one must fail it."""
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
    assert least_processor_s(program) < 4.3 * least_processor_s("import typer")


def least_processor_s(program: str) -> float:
    spent = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        after = os.times()
        spent.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return min(spent)


def test_completion_is_offered_for_the_shells(run):
    shown = subprocess.run(
        [sys.executable, "-m", "specfit.cli", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert shown.returncode == 0
    assert "complete" in shown.stdout


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


def test_a_full_disk_under_stdout_is_one_line():
    program = f"{sys.executable} -m specfit.cli show policies > /dev/full"
    ran = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: cannot write the result: No space left on device.")
    assert len(ran.stderr.splitlines()) == 1


def test_an_interrupt_while_the_program_is_imported_is_one_line(monkeypatch, capsys):
    class Importing:
        @property
        def app(self):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "specfit.cli.main", Importing())
    with pytest.raises(SystemExit) as left:
        start()
    assert left.value.code == 130
    assert capsys.readouterr().err == "error: interrupted; nothing was written.\n"


def test_an_interrupt_before_the_verb_is_one_line(run, monkeypatch):
    def interrupted(*args, **given):
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.make_context", interrupted)
    result = run("show", "caches")
    assert result.exit_code == 130
    assert result.stderr == "error: interrupted; nothing was written.\n"


def test_an_interrupt_after_the_end_changes_nothing():
    program = (
        "import atexit, os, signal, sys\n"
        "from specfit.cli.__main__ import run\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['specfit', '--version']\n"
        "run()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


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
    assert "torch" in found["CUDA in torch"] or "CUDA" in found["CUDA in torch"]


def test_doctor_says_that_cuda_never_ran_until_a_result_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "RESULTS", tmp_path)
    assert "has never run on a GPU" in doctor.cuda_in_specfit()
    (tmp_path / "gpu-decode.json").write_text("{}")
    assert doctor.cuda_in_specfit() == "results of GPU runs: gpu-decode.json"


def test_doctor_without_torch_says_what_is_left(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "traces can be replayed" in cuda_in_torch()


def test_doctor_notices_a_read_only_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *args: False)
    assert f"{tmp_path} is read-only" in doctor.free_space(tmp_path)
