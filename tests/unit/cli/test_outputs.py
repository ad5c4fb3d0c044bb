import pytest

from specfit.cli.outputs import keeping_prompts, new_file, new_folder
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
