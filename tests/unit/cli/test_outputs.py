import os

import pytest
from typer.testing import CliRunner

from specfit.cli.main import app
from specfit.cli.outputs import check_can_write, keeping_prompts, new_file, new_folder
from specfit.core.errors import InvalidInputError

MARK = "results.json"


def fill(folder, text):
    (folder / MARK).write_text(text)


def test_a_folder_appears_whole(tmp_path):
    out = tmp_path / "deep" / "out"
    with new_folder(out, owned_file=MARK) as partial:
        fill(partial, "new")
        assert not out.exists()
    assert [p.name for p in out.iterdir()] == [MARK]
    assert [p.name for p in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_the_older_folder_is_as_it_was(tmp_path, error):
    out = tmp_path / "out"
    with new_folder(out, owned_file=MARK) as partial:
        fill(partial, "old")
    with pytest.raises(error), new_folder(out, owned_file=MARK) as partial:
        fill(partial, "new")
        raise error
    assert (out / MARK).read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_older_result_is_replaced(tmp_path):
    out = tmp_path / "out"
    for text in ("old", "new"):
        with new_folder(out, owned_file=MARK) as partial:
            fill(partial, text)
    assert (out / MARK).read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_somebody_elses_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with (
        pytest.raises(InvalidInputError, match="holds other files"),
        new_folder(tmp_path, owned_file=MARK),
    ):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    out = tmp_path / "profile.toml"
    with pytest.raises(ValueError, match="no"), new_file(out) as partial:
        partial.write_text("half")
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with new_file(out) as partial:
        partial.write_text("whole")
    assert out.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("has_prompt", [True, False])
def test_an_interrupted_trace_says_truly_what_is_kept(tmp_path, has_prompt):
    trace = tmp_path / "trace"
    said = "kept in .*trace, marked unfinished" if has_prompt else "nothing was written"
    with pytest.raises(KeyboardInterrupt, match=said), keeping_prompts(trace):
        if has_prompt:
            trace.mkdir()
        raise KeyboardInterrupt


def test_a_trace_of_an_earlier_run_is_not_called_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="nothing was written"), keeping_prompts(tmp_path):
        raise KeyboardInterrupt


def test_what_can_be_written_passes(tmp_path):
    check_can_write(tmp_path / "new", tmp_path / "deep" / "down" / "new.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"cannot write .*file/deep/x: .*file is a file"):
        check_can_write(tmp_path / "file" / "deep" / "x")


def test_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)
    with pytest.raises(InvalidInputError, match=f"{tmp_path} is read-only for you"):
        check_can_write(tmp_path / "deep" / "x")


LONG_VERBS = (
    ["calibrate", "-o"],
    ["record", "--prompt", "hello", "-o"],
    ["watch", "--prompt", "hello", "--counters"],
    ["fit", "predictor", "trace", "-o"],
    ["fit", "acceptance", "trace", "-o"],
)


@pytest.mark.parametrize("words", LONG_VERBS, ids=lambda words: words[0])
def test_a_long_verb_says_before_it_starts_that_its_result_has_no_place(tmp_path, words):
    """Before the model is loaded, the machine measured or the trace, which is not there, read."""
    (tmp_path / "file").write_text("")
    said = CliRunner().invoke(app, [*words, str(tmp_path / "file" / "x")])
    assert said.exit_code == 2
    assert f"{tmp_path / 'file'} is a file" in said.stderr
    assert "..." not in said.stderr
