"""A sweep's report as Markdown, with its pictures beside it as PNG."""

from __future__ import annotations

from specfit.report.sweep_report import Report
from specfit.report.sweep_tables import Table


def markdown_of(report: Report, pictures: str) -> str:
    """Return the report as Markdown.

    Parameters
    ----------
    pictures : str
        Folder of the pictures, relative to the page.
    """
    parts = [f"# {report.title}", report.source]
    parts += ["\n".join(f"- {sentence}" for sentence in report.findings)]
    for picture in report.pictures:
        parts.append(f"![{_escaped(picture.title)}]({pictures}/{picture.key}.png)")
    for table in report.tables:
        parts += [f"## {table.title}", f"{report.source}\n\n{table.note}", _table(table)]
    parts += ["## What made these results"]
    parts += ["\n".join(f"- {name}: `{value}`" for name, value in report.manifest)]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [table.header, ["---", *["--:"] * (len(table.header) - 1)]]
    lines += [[cell.text for cell in row] for row in table.rows]
    return "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").replace("]", "\\]")
