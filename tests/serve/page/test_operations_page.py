"""The links from a page of the daemon to the operations page, and the text behind them."""

from pathlib import Path

import pytest

from tests.serve.page.test_markup import Seen
from tierd.serve.page.operations_page import (
    Anchor,
    DocumentedSection,
    anchor_of,
    help_link,
    read_operations_page,
    render_section,
    sections_of,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("anchor", Anchor)
def test_every_link_leads_to_a_section_with_text_of_the_operations_page(anchor: Anchor) -> None:
    sections = sections_of((ROOT / "docs/operations.md").read_text())
    assert len(sections[anchor.value].text) > 40


def test_page_in_the_work_tree_is_that_of_the_documentation() -> None:
    assert read_operations_page() == (ROOT / "docs/operations.md").read_text()


def test_comment_in_a_block_of_code_begins_no_section() -> None:
    found = sections_of("# One\ntext\n```sh\n# no section\n```\n## `Two`: it's (2)\nmore\n")
    assert found == {
        "one": DocumentedSection("One", "text\n```sh\n# no section\n```"),
        "two-its-2": DocumentedSection("`Two`: it's (2)", "more"),
    }
    assert anchor_of("`Two`: it's (2)") == "two-its-2"


def test_links_between_sections_work_and_links_to_other_pages_name_the_file() -> None:
    text = "see [the `two`](#two) and [cost](stores.md#cost) <b>"
    assert render_section(DocumentedSection("One", text), {"two"}) == (
        '<article><p>see <a href="/help/two">the <code>two</code></a> and cost (docs/stores.md#cost) &lt;b&gt;</p>'
        "</article>"
    )


def test_every_section_is_shown_with_its_words_and_without_marks() -> None:
    sections = sections_of((ROOT / "docs/operations.md").read_text())
    for found in sections.values():
        words = Seen(render_section(found, sections)).words
        assert "|---" not in words
        assert "```" not in words
        assert "**" not in words.replace("********", "")  # a masked secret
        assert "\\n" not in words or "\\n" in found.text


def test_links_with_equal_texts_have_names_of_their_own() -> None:
    assert help_link(Anchor.DRILLS) == '<a href="/help/drills" aria-label="what to do: drills">what to do</a>'
