"""A sweep's report as one HTML file that opens from disk: everything it needs is inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from specfit.report import style
from specfit.report.sweep_report import Picture, Report
from specfit.report.sweep_tables import PLACE, Cell, Table

NAME = ' class="name"'
TEMPLATE = Path(__file__).with_name("sweep_page.html")


def page_of(report: Report) -> str:
    """Return the report as HTML."""
    long = [table for table in report.tables if table.is_long]
    filled = {
        "TITLE": escape(report.title),
        "SOURCE": escape(report.source),
        "FINDINGS": "".join(f"<li>{escape(sentence)}</li>" for sentence in report.findings),
        "CONTENTS": _contents(report),
        "PICTURES": "".join(map(_picture, report.pictures)),
        "OVERVIEWS": "".join(_table(t, report.source) for t in report.tables if not t.is_long),
        "FILTERS": _filters(long[0]),
        "LONG": "".join(_table(table, report.source) for table in long),
        "MANIFEST": "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.manifest
        ),
    }
    return re.sub(r"<!--([A-Z]+)-->", lambda match: filled[match[1]], TEMPLATE.read_text("utf-8"))


def _contents(report: Report) -> str:
    links = [(f"picture-{p.key}", p.title) for p in report.pictures]
    links += [(f"table-{table.key}", table.title) for table in report.tables]
    return "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in links)


def _picture(picture: Picture) -> str:
    data = base64.b64encode(style.svg_bytes(picture.figure)).decode()
    width, _ = picture.figure.get_size_inches()
    return (
        f'<figure id="picture-{picture.key}"><img alt="{escape(picture.title)}" '
        f'style="width: {width * 96:.0f}px" src="data:image/svg+xml;base64,{data}"></figure>'
    )


def _table(table: Table, source: str) -> str:
    is_name = [name in PLACE for name in table.header]
    head = "".join(
        f'<th scope="col"{NAME if named else ""}>{escape(name)}</th>'
        for name, named in zip(table.header, is_name, strict=True)
    )
    body = "".join(_row(row, is_name) for row in table.rows)
    kind = ' class="long"' if table.is_long else ""
    return (
        f'<section id="table-{table.key}"><h3>{escape(table.title)}</h3>'
        f'<p class="note">{escape(table.note)}</p><p class="note">{escape(source)}</p>'
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _row(row: tuple[Cell, ...], is_name: Sequence[bool]) -> str:
    cells = (_cell(cell, NAME if named else "") for cell, named in zip(row, is_name, strict=True))
    return "<tr>" + "".join(cells) + "</tr>"


def _cell(cell: Cell, kind: str) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    return f"<td{kind}{value}>{escape(cell.text)}</td>"


def _filters(table: Table) -> str:
    """Return a choice for each column of `PLACE` that has more than one value."""
    choices = []
    for column, name in enumerate(PLACE):
        values = list(dict.fromkeys(row[column].text for row in table.rows))
        if len(values) > 1:
            options = "".join(f"<option>{escape(value)}</option>" for value in values)
            choices.append(
                f'<label>{name} <select data-column="{column}"><option value="">all</option>'
                f"{options}</select></label>"
            )
    return "".join(choices)
