"""The pages that the project writes, as Markdown and as HTML in one file that loads nothing, from Jinja2 templates."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from codegrep.tracking.parameters import masked_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What Markdown takes for code, emphasis, HTML, a table's border or the end of a link's text.
_MARKUP = re.compile(r"[\\`*<|]|(?<!\w)_|_(?!\w)|\](?=[(\[:])")


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

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure. name: of its file, without suffix. alt: a description of what it shows."""

    name: str
    figure: Figure
    alt: str


Block = Heading | Paragraph | Bullets | Table | Picture


@dataclass(frozen=True)
class Page:
    """A page as data. subtitle: a line below the title; "" for none."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Picture))


def write(page: Page, folder: Path, *, markdown_name: str, html_name: str) -> None:
    """Write the page in both forms, and its pictures to figures/ beside them."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for picture in page.pictures:
        picture.figure.savefig(folder / "figures" / f"{picture.name}.png", dpi=150, bbox_inches="tight")
    (folder / markdown_name).write_text(markdown(page), encoding="utf-8")
    (folder / html_name).write_text(html(page), encoding="utf-8")


def markdown(page: Page) -> str:
    """Return the page in GitHub's Markdown; pictures are figures/NAME.png beside it."""
    return render("page.md", page=page)


def html(page: Page) -> str:
    """Return the page as one HTML file: styles and pictures inside, no script, nothing fetched."""
    return render("page.html", page=page)


def render(template: str, **values: object) -> str:
    """Fill a file of templates/. Values are escaped in HTML; in Markdown by the filter `md`, where they are text."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("codegrep.tracking"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"kind": _kind, "masked": masked_text, "md": _md, "svg": _svg}
    return environment


def _kind(block: Block) -> str:
    return type(block).__name__


def _md(text: object) -> str:
    """Return one line of Markdown that shows the text as it is."""
    return " ".join(_MARKUP.sub(r"\\\g<0>", str(text)).split())


def _svg(figure: Figure) -> str:
    """Return a figure as SVG in base64, the same for the same figure."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "codegrep"}):
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return base64.b64encode(file.getvalue()).decode()
