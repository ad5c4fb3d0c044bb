import json

import pytest

from specfit.cli import console

HEADER = ["", "autoregressive", "eagle3", "specfit", "eagle3"]
ROWS = [
    ["committed tokens a cycle", "1.00", "3.87", "2.25", "3.87"],
    ["cycle time off, predicted", "-", "-", "92 / 96 %", "-"],
]


@pytest.fixture
def terminal(monkeypatch):
    def of_width(columns):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))

    return of_width


def shown(text):
    """Return the lines of a text without its colours."""
    import re

    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]


def test_without_a_terminal_no_cell_is_broken(capsys):
    console.print_table(["", "x" * 200], [["a", "y" * 300]], note="n " * 100)
    lines = capsys.readouterr().out.splitlines()
    assert any("y" * 300 in line for line in lines)
    assert lines[-1].count("n") == 100


def test_a_result_table_fits_a_terminal_of_80_columns(terminal, capsys):
    terminal(80)
    console.print_table(HEADER, ROWS)
    lines = shown(capsys.readouterr().out)
    assert max(map(len, lines)) <= 80
    assert any(line.split() == [*ROWS[0][0].split(), *ROWS[0][1:]] for line in lines)


def test_on_a_narrow_terminal_columns_come_one_below_the_other(terminal, capsys):
    terminal(40)
    console.print_table(HEADER, ROWS)
    lines = shown(capsys.readouterr().out)
    assert max(map(len, lines)) <= 40
    assert sum("committed tokens a cycle" in line for line in lines) == 4


def test_on_a_narrow_terminal_a_table_of_texts_comes_a_row_below_the_other(terminal, capsys):
    terminal(40)
    header = ["name", "what it does", "parameters", "source"]
    rows = [[name, f"verifies {name}s", "min_path_prob=0.1", "arXiv 2410.18351"] for name in "ab"]
    console.print_table(header, rows, is_numeric=False)
    lines = shown(capsys.readouterr().out)
    assert lines[:4] == [
        "a",
        "what it does: verifies as",
        "parameters: min_path_prob=0.1",
        "source: arXiv 2410.18351",
    ]
    assert len(lines) == 8


def test_markup_in_data_is_shown_as_it_is(capsys):
    console.print_table(["", "a"], [["[bold]x[/bold]", "[1.0, 2.0]"]], title="[red]t")
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "[1.0, 2.0]" in out
    assert "[red]t" in out


def test_json_lines_are_strict(capsys):
    console.print_json([{"a": 1, "b": "é"}, {"a": None}])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"a": 1, "b": "é"},
        {"a": None},
    ]
    with pytest.raises(ValueError, match="JSON"):
        console.print_json([{"a": float("nan")}])


def test_progress_without_a_terminal_names_its_tasks_and_no_more(capsys):
    with console.progress() as bars:
        task = bars.add_task("recording", total=3)
        bars.advance(task)
    with console.progress(is_named=False) as bars:
        bars.add_task("silent", total=3)
    assert capsys.readouterr().err == "recording ...\n"
