"""The part of Markdown that the operations page is written in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.page.test_markup import Seen
from tierd.serve.page.markdown import render_markdown


def rendered(text: str) -> str:
    return render_markdown(text, lambda target: f"/to/{target}" if target != "none" else None, name="t")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one two</p><p>three</p>"),
        ("a `b|<c>` **d `e`**", "<p>a <code>b|&lt;c&gt;</code> <strong>d <code>e</code></strong></p>"),
        ("- one\n  more\n- two", "<ul><li>one more</li><li>two</li></ul>"),
        ("text:\n1. one\n2. two", "<p>text:</p><ol><li>one</li><li>two</li></ol>"),
        ("[x](y) [z](none)", '<p><a href="/to/y">x</a> z (docs/none)</p>'),
        ("```bash\na <b>\n\n# c | d\n```", "<pre>a &lt;b&gt;\n\n# c | d\n</pre>"),
        ("text\n```\na\n```\nmore", "<p>text</p><pre>a\n</pre><p>more</p>"),
    ],
)
def test_block_becomes_the_element_that_it_is(text: str, html: str) -> None:
    assert rendered(text) == html


def test_table_has_heads_and_rows_of_one_length() -> None:
    seen = Seen(rendered("| a | `b` |\n|---|---|\n| 1 \\| 2 | 3 |\n| 4 |"))
    assert [tag for tag, _ in seen.tags].count("th") == 4
    assert [tag for tag, _ in seen.tags].count("td") == 2
    assert "1 | 2" in seen.words


@given(st.text(alphabet="a`*[]()|-#<\\\n 1.", max_size=60))
def test_any_text_is_made_into_known_elements_alone(text: str) -> None:
    blocks = {
        "p",
        "ul",
        "ol",
        "li",
        "pre",
        "blockquote",
        "hr",
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    known = blocks | {"code", "strong", "em", "a"}
    assert {tag for tag, _ in Seen(rendered(text)).tags} <= known
