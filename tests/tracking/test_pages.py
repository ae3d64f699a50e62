"""Pages: text from anywhere is shown as it is, in both forms."""

from __future__ import annotations

import jinja2
import pytest
from matplotlib.figure import Figure

from codegrep.tracking import pages
from codegrep.tracking.pages import Bullets, Heading, Page, Paragraph, Picture, Table


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", "a\\|b"),
        ("<script>`x`*y*", "\\<script>\\`x\\`\\*y\\*"),
        ("[text](http://evil) [a][b]", "[text\\](http://evil) [a\\][b]"),
        ("[x]: http://evil", "[x\\]: http://evil"),
        ("_stressed_ but bm25_no_tests", "\\_stressed\\_ but bm25_no_tests"),
        ("0.4 [0.3, 0.5]", "0.4 [0.3, 0.5]"),
        ("two\nlines", "two lines"),
    ],
)
def test_text_in_markdown(text: str, written: str) -> None:
    page = Page("t", "", (Paragraph(text), Table(("k", "v"), ((text, "1"),))))
    assert pages.markdown(page) == f"# t\n\n{written}\n\n| k | v |\n| :-- | --: |\n| {written} | 1 |\n"


def test_text_in_html_is_escaped_in_every_block() -> None:
    evil = '</p><img src=x onerror="1">'
    blocks = (Heading(evil), Paragraph(evil, strong=True), Bullets((evil,)), Table((evil,), ((evil,),)))
    text = pages.html(Page(evil, evil, (*blocks, Picture("p", Figure(), evil))))
    assert "<img src" not in text and text.count("&lt;img src") == 9


def test_a_name_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        pages.render("page.md")
