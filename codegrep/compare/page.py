"""A page as data, and the two forms that it is written in: Markdown, and HTML in one file that loads nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Heading:
    """level: 2 or 3; the page's title is level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """strong: set apart as the page's answer."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Bullets:
    """Short lines."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Text cells. left: number of columns, from the first, that are aligned to the left; the rest are numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure. name: of its file, without suffix. alt: what it shows, for who cannot see it."""

    name: str
    figure: Figure
    alt: str


Block = Heading | Paragraph | Bullets | Table | Picture


@dataclass(frozen=True)
class Page:
    """title, a line below it, and blocks."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All of them, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Picture))


def markdown(page: Page, folder: str = "figures") -> str:
    """The page in GitHub's Markdown; pictures are `<folder>/<name>.png` beside it."""
    parts = [f"# {_md(page.title)}", _md(page.subtitle)]
    for block in page.blocks:
        match block:
            case Heading(text, level):
                parts.append(f"{'#' * level} {_md(text)}")
            case Paragraph(text, strong):
                parts.append(f"**{_md(text)}**" if strong else _md(text))
            case Bullets(items):
                parts.append("\n".join(f"- {_md(item)}" for item in items))
            case Table():
                parts.append(_md_table(block))
            case Picture(name, _, alt):
                parts.append(f"![{_md(alt)}]({folder}/{name}.png)")
    return "\n\n".join(parts) + "\n"


def html(page: Page) -> str:
    """The page as one HTML file: styles and pictures inside, no script, nothing fetched."""
    body = [f"<h1>{escape(page.title)}</h1>", f'<p class="sub">{escape(page.subtitle)}</p>']
    for block in page.blocks:
        match block:
            case Heading(text, level):
                body.append(f"<h{level}>{escape(text)}</h{level}>")
            case Paragraph(text, strong):
                body.append(f'<p class="answer">{escape(text)}</p>' if strong else f"<p>{escape(text)}</p>")
            case Bullets(items):
                body.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")
            case Table():
                body.append(_html_table(block))
            case Picture(_, figure, alt):
                data = base64.b64encode(svg(figure)).decode()
                body.append(f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">')
    return _HTML.format(title=escape(page.title), body="\n".join(body))


def png(figure: Figure) -> bytes:
    """The figure as a picture, 150 dots an inch."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
    return file.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as SVG, the same bytes for the same figure."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "codegrep"}):
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return file.getvalue()


def _md(text: str) -> str:
    """Text with what would be markup or a table's border taken as it is."""
    for sign in ("\\", "`", "*", "_", "<", "[", "]", "|"):
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


def _md_table(table: Table) -> str:
    rule = [":--" if column < table.left else "--:" for column in range(len(table.header))]
    lines = [[_md(cell) for cell in table.header], rule, *([_md(cell) for cell in row] for row in table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _html_table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        made = (
            f"<{tag}{' class=l' if column < table.left else ''}>{escape(cell)}</{tag}>"
            for column, cell in enumerate(cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "\n".join(row(cells, "td") for cells in table.rows)
    head = f"<thead>{row(table.header, 'th')}</thead>"
    return f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>'


_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; max-width: 1080px;
  margin: 2rem auto; padding: 0 1.2rem; }}
h1 {{ font-size: 1.7rem; margin-bottom: 0; }}
h2 {{ font-size: 1.25rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .4rem; }}
p, li {{ max-width: 52rem; }}
.sub {{ color: #5a5a5a; margin-top: .2rem; }}
.answer {{ font-size: 1.15rem; border-left: 4px solid #0072B2; padding: .5rem 1rem; background: #f2f7fa; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }}
th, td {{ padding: .28rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }}
th {{ border-bottom: 2px solid #bbb; font-weight: 600; white-space: normal; vertical-align: bottom; }}
.l {{ text-align: left; }}
img {{ max-width: 100%; height: auto; margin: .6rem 0; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
