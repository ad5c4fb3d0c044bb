"""The report of a sweep: figures that follow from the table, a page that needs nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

from specfit.cli.main import app
from specfit.report.best_chart import winner_at
from specfit.report.naming import looks_of, rule_of, short_names, trace_names
from specfit.report.style import svg_bytes
from specfit.report.sweep_markdown import markdown_of
from specfit.report.sweep_page import page_of
from specfit.report.sweep_report import Report, report_of
from specfit.report.sweep_tables import PLACE, Table, tables_of
from specfit.report.time_chart import spread
from specfit.sim.results import Results, results_of

NUM_ROWS = 2 * 4 * 3 * 2
"""Traces, policies, caches and links."""


@pytest.fixture(scope="module")
def report(results: Results) -> Report:
    return report_of(results)


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return page_of(report)


def table(results: Results, key: str) -> Table:
    return next(t for t in tables_of(results) if t.key == key)


def column(of: Table, name: str) -> list[float | None]:
    return [row[of.header.index(name)].value for row in of.rows]


def test_every_cell_has_a_row_in_every_long_table(results: Results) -> None:
    long = [t for t in tables_of(results) if t.is_long]
    assert [t.key for t in long] == ["speed", "time", "copies"]
    for each in long:
        assert len(each.rows) == NUM_ROWS
        assert each.header[: len(PLACE)] == PLACE
        assert all(len(row) == len(each.header) for row in each.rows)


def test_one_policy_of_each_place_has_no_regret(results: Results) -> None:
    table = next(table for table in tables_of(results) if table.key == "speed")
    speed, lack = table.header.index("tokens/s"), table.header.index("regret")
    rows: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in table.rows:
        found = (row[speed].value, row[lack].value)
        assert found[0] is not None and found[1] is not None
        rows.setdefault(tuple(cell.text for cell in row[:3]), []).append((found[0], found[1]))
    assert len(rows) == len(results.places)
    for of_place in rows.values():
        best = max(tokens_per_s for tokens_per_s, _ in of_place)
        assert min(share for _, share in of_place) == 0
        for tokens_per_s, share in of_place:
            assert share < 1 and tokens_per_s == pytest.approx((1 - share) * best)


def test_speedups_are_over_the_same_trace_link_and_cache(results: Results) -> None:
    speed = table(results, "speed")
    gains = zip(results, column(speed, "over plain"), column(speed, "over eagle3"), strict=True)
    for result, plain_gain, rival_gain in gains:
        here = {r.policy: r.metrics.tokens_per_s for r in results.at(result.place)}
        own = here[result.policy]
        assert plain_gain == pytest.approx(own / here["autoregressive"])
        assert rival_gain == pytest.approx(own / here["eagle3:depth=4,top_k=3,max_nodes=12"])


def test_the_parts_of_a_token_sum_to_its_time(results: Results) -> None:
    time = table(results, "time")
    parts = [
        column(time, f"{part}, ms") for part in ("draft", "select", "stall", "compute", "commit")
    ]
    for result, *of_row, whole in zip(results, *parts, column(time, "ms a token"), strict=True):
        assert sum(value or 0 for value in of_row) == pytest.approx(whole)
        assert whole == pytest.approx(1e3 / result.metrics.tokens_per_s)


def test_no_cache_is_below_belady_and_none_has_no_floor(results: Results) -> None:
    copies = table(results, "copies")
    for result, above in zip(results, column(copies, "above Belady"), strict=True):
        if result.place.cache == "none":
            assert above is None
        else:
            assert above is not None and above >= 0


def test_the_winner_is_the_fastest(results: Results) -> None:
    for trace in results.traces:
        part = results.of_trace(trace)
        for place in part.places:
            found = winner_at(part, place)
            speeds = sorted((r.metrics.tokens_per_s for r in part.at(place)), reverse=True)
            assert found is not None
            assert found.lead == pytest.approx(speeds[0] / speeds[1] - 1)


def test_every_picture_and_table_says_what_its_seconds_are(report: Report) -> None:
    for picture in report.pictures:
        words = " ".join(text.get_text() for text in picture.figure.texts)
        assert "simulated" in words and "recorded" in words
    source = report.source
    assert "simulated" in source and "'example' (cited)" in source and "wide (recorded)" in source


def test_the_report_says_everything_that_decided_its_rows(report: Report) -> None:
    said = dict(report.manifest)
    assert said["prefetch"] == "none" and said["overlap"] == "the profile's"
    assert said["predictor"] == said["acceptance"] == "the model's"
    assert {"specfit", "commit", "cost", "model", "host", "max_prompts"} <= set(said)


def test_the_pictures_asked_for_are_there(report: Report) -> None:
    kinds = {picture.key.rstrip("-0123456789") for picture in report.pictures}
    assert kinds == {"best", "speed-by-cache", "speed-by-link", "time", "unions", "acceptance"}


def test_no_text_of_a_picture_is_cut_or_covered(report: Report) -> None:
    for picture in report.pictures:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            FigureCanvasAgg(picture.figure).draw()
        texts = shown_texts(picture.figure)
        boxes = [text.get_window_extent() for text in texts]
        frame = picture.figure.bbox
        for box in boxes:
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1, picture.key
            assert frame.y0 <= box.y0 and box.y1 <= frame.y1, picture.key
        for number, box in enumerate(boxes):
            later = zip(texts[number + 1 :], boxes[number + 1 :], strict=True)
            covered = [other for other, of_other in later if covers(box, of_other)]
            assert covered == [], (picture.key, texts[number])


def shown_texts(figure: Figure) -> list[Text]:
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    limits = [
        (axis, axis.get_view_interval())
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
    ]
    hidden = {
        id(label)
        for axis, (low, high) in limits
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        if not min(low, high) <= tick.get_loc() <= max(low, high)
        for label in (tick.label1, tick.label2)
    }
    return [t for t in texts if id(t) not in hidden]


def covers(box, other) -> bool:
    """Return whether two boxes share more than a touch."""
    width = min(box.x1, other.x1) - max(box.x0, other.x0)
    height = min(box.y1, other.y1) - max(box.y0, other.y0)
    return width > 1 and height > 1


class Page(HTMLParser):
    """Notes what a page refers to, and its ids and tags."""

    def __init__(self) -> None:
        super().__init__()
        self.refers: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.num_rows = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.refers += [
            v for k, v in attrs if k in ("src", "href", "srcset", "data", "action") and v
        ]
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.num_rows += tag == "tr"
        if tag == "img":
            assert values.get("alt")
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_other_file(page: str, report: Report) -> None:
    read = Page()
    read.feed(page)
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    for target in read.refers:
        assert target.startswith(("data:", "#")), target
        assert not target.startswith("#") or target[1:] in read.ids
    assert not re.search(r"@import|url\((?!data:)|https?://(?!www\.w3\.org)", page)
    assert read.num_rows == sum(len(t.rows) + 1 for t in report.tables)
    assert "<!--" not in page


def test_a_name_cannot_break_the_page(results: Results) -> None:
    rows = [{**row, "trace": '"><script>x</script>'} for row in results.of_trace("wide").rows]
    page = page_of(replace(report_of(results_of(rows)), pictures=[]))
    assert "<script>x" not in page
    read = Page()
    read.feed(page)
    assert read.open == []


def test_the_same_results_make_the_same_report(report: Report, results: Results) -> None:
    again = report_of(results)
    assert (again.tables, again.findings) == (report.tables, report.findings)
    drawn = [svg_bytes(r.pictures[0].figure) for r in (report, again)]
    assert drawn[0] == drawn[1]


def test_the_markdown_has_every_table_and_picture(report: Report) -> None:
    text = markdown_of(report, "pictures")
    for each in report.tables:
        assert f"## {each.title}" in text
    for picture in report.pictures:
        assert f"(pictures/{picture.key}.png)" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == sum(len(t.rows) + 2 for t in report.tables)


def test_names_say_only_what_tells_apart() -> None:
    specs = [
        "eagle3:depth=4,top_k=3",
        "eagle3:depth=4,top_k=2",
        "specfit:depth=5",
        "my.py:Mine:a=1",
    ]
    assert list(short_names(specs).values()) == [
        "eagle3 top_k=3",
        "eagle3 top_k=2",
        "specfit",
        "Mine",
    ]
    assert trace_names(["a/x", "b/x", "c/y"]) == {"a/x": "a/x", "b/x": "b/x", "c/y": "y"}
    assert rule_of("lfu:25%,decay=0.9") == "lfu, decay=0.9"
    assert rule_of("none") == "none"


def test_many_policies_still_look_different() -> None:
    looks = looks_of([f"p{i}" for i in range(16)])
    assert len({(x.color, x.mark, x.dashes) for x in looks.values()}) == 16


def test_spread_keeps_the_ends() -> None:
    assert spread(list("abcdefg"), 3) == ["a", "d", "g"]
    assert spread(list("ab"), 3) == ["a", "b"]


def test_the_verb_writes_page_markdown_and_pictures(sweep_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    made = CliRunner().invoke(app, ["report", str(sweep_folder), "--out", str(out)])
    assert made.exit_code == 0, made.output
    assert "fastest is" in made.stdout and "simulated" in made.stdout
    pictures = sorted(path.name for path in (out / "pictures").iterdir())
    assert len(pictures) == 10 and all(name.endswith(".png") for name in pictures)
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "pictures"}


def test_the_verb_refuses_what_is_no_sweep(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert made.exit_code == 2
    assert "finished sweep" in made.stderr
    assert list(tmp_path.iterdir()) == []


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)}")
def test_a_browser_opens_the_page_without_errors(page: str, tmp_path: Path) -> None:
    said, shown = opened(page, tmp_path)
    assert said == []
    assert 'tabindex="0"' in shown  # the script has run
    broken, _ = opened(page.replace('"use strict";', "missing();"), tmp_path)
    assert any("missing is not defined" in line for line in broken)


def opened(page: str, folder: Path) -> tuple[list[str], str]:
    """Return what a headless browser says on its console, and the page as it then stands."""
    assert BROWSER is not None
    (folder / "page.html").write_text(page, "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    ran = subprocess.run(
        [
            BROWSER,
            *flags,
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            (folder / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [line for line in ran.stderr.splitlines() if "CONSOLE" in line], ran.stdout
