"""HTML from values."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.page.page_values import HOSTILE
from tierd.serve.page.markup import (
    Column,
    Html,
    duration_text,
    element,
    link,
    moment,
    number_text,
    path_of,
    table,
    with_query,
)
from tierd.sizes import human_size


class Seen(HTMLParser):
    """Content of a text for a parser of HTML: tags with attributes, and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.text())
def test_any_text_stays_text_and_any_value_stays_a_value(text: str) -> None:
    seen = Seen(element("p", text, title=text))
    (tag, attributes) = seen.tags[0]
    assert [tag for tag, _ in seen.tags] == ["p"]
    assert set(attributes) == {"title"}
    assert tag == "p"


@pytest.mark.parametrize("name", HOSTILE)
def test_name_that_looks_like_markup_is_one_step_of_a_path(name: str) -> None:
    seen = Seen(link(path_of("topics", name), name))
    href = seen.tags[0][1]["href"]
    assert href is not None
    assert href.isascii()
    assert href.count("/") == 2
    assert not set("<>\"'?#\x1b ") & set(href)


def test_html_is_taken_as_it_is_and_text_is_not() -> None:
    assert element("p", Html("<b>x</b>"), "<i>") == "<p><b>x</b>&lt;i&gt;</p>"


def test_attribute_that_is_false_or_none_is_left_out() -> None:
    assert element("input", value=0, checked=True, disabled=False, class_=None) == '<input value="0" checked>'


def test_cells_have_their_heads_and_the_region_the_name_of_the_table() -> None:
    made = table(
        "Two <rows>", [Column("Name", sort="ascending"), Column("Size", is_number=True)], [("a", "1"), ("b", "2")]
    )
    tags = Seen(made).tags
    assert [attributes for tag, attributes in tags if tag == "th"] == [
        {"scope": "col", "aria-sort": "ascending"},
        {"scope": "col", "class": "n"},
        {"scope": "row"},
        {"scope": "row"},
    ]
    assert tags[0] == ("div", {"class": "scroll", "role": "region", "aria-label": "Two <rows>", "tabindex": "0"})


def test_query_has_only_what_is_given() -> None:
    assert with_query("/x", pattern="a&b", sort="", page=0) == "/x?pattern=a%26b"
    assert with_query("/x", page=0) == "/x"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (human_size(0), "0 B"),
        (human_size(1023), "1023 B"),
        (human_size(1536), "1.5 KiB"),
        (human_size(1 << 60), "1024.0 PiB"),
        (duration_text(0.25), "0.2 s"),
        (duration_text(59), "59 s"),
        (duration_text(3599), "59 min 59 s"),
        (duration_text(7500), "2 h 5 min"),
        (duration_text(200_000), "2 d 7 h"),
        (number_text(1234567), "1,234,567"),
        (number_text(-1), ""),
        (number_text(None), ""),
        (moment(None), "never"),
        (moment(10**18), "1000000000000000000 ms"),
    ],
)
def test_number_has_the_unit_that_a_person_reads(made: str, text: str) -> None:
    assert made == text
