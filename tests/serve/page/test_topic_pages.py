"""Pages of the inventory: filter, order, paging, and names that look like markup."""

import pytest

from tests.serve.page.page_values import HOSTILE, MARKUP, inventory_of, status_of
from tests.serve.page.test_markup import Seen
from tierd.serve import HostInventory
from tierd.serve.page.page_query import ROWS_PER_PAGE, ListQuery
from tierd.serve.page.topic_pages import SORTS, records_text, render_topic, render_topics, topic_lines
from tierd.tiering import ManifestFacts, TierContents


def rows_of(html: str) -> list[str]:
    """Return the text of the first cell of each row."""
    return [
        Seen(part).words.strip() for part in html.split('<th scope="row">')[1:] for part in [part.split("</th>")[0]]
    ]


def query(**parameters: str) -> ListQuery:
    return ListQuery.parse(parameters, tuple(SORTS))


def test_topic_is_the_sum_of_its_partitions() -> None:
    (line,) = topic_lines(inventory_of(["orders-0", "orders-1", "orders-2"]))
    assert (line.name, line.partitions, line.contents.segments, line.contents.offsets) == ("orders", 3, 6, 600)


def test_partition_of_another_leader_is_listed_with_the_reason_and_a_link() -> None:
    inventory = HostInventory(
        partitions=inventory_of(["orders-0"]).partitions,
        elsewhere={status_of("orders-1").partition: "another broker leads it"},
    )
    html = render_topics(inventory, query())
    assert "another broker leads it" in html
    assert 'href="/help/states-of-a-partition"' in html
    assert topic_lines(inventory)[0].partitions == 2
    topic = render_topic("orders", inventory, query())
    assert topic is not None
    assert rows_of(topic) == ["0", "1"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("", ["bills", "orders", "orders-old"]), ("ord", ["orders", "orders-old"]), ("ord*s", ["orders"]), ("[", [])],
)
def test_filter_takes_a_part_of_a_name_or_a_pattern(pattern: str, names: list[str]) -> None:
    html = render_topics(inventory_of(["bills-0", "orders-0", "orders-old-0"]), query(pattern=pattern))
    assert rows_of(html) == names


def test_order_by_size_has_the_largest_first() -> None:
    html = render_topics(inventory_of(["a-0", "b-3", "c-1"]), query(sort="size"))
    assert rows_of(html) == ["b", "c", "a"]


def test_unknown_order_and_page_count_as_none() -> None:
    assert query(sort="<script>", page="-1") == ListQuery()
    assert query(page="١") == ListQuery()
    assert query(page="99999999999") == ListQuery()


def test_ten_thousand_partitions_are_a_hundred_rows_a_page_with_links_that_keep_filter_and_order() -> None:
    names = [f"topic-{n:04d}-0" for n in range(10_000)]
    html = render_topics(inventory_of(names), query(pattern="topic", sort="size", page="3"))
    assert len(rows_of(html)) == ROWS_PER_PAGE
    assert "201 to 300 of 10,000 topics" in html
    assert 'href="/topics?pattern=topic&amp;sort=size&amp;page=4"' in html
    assert len(html) < 200_000
    last = render_topics(inventory_of(names), query(page="500"))
    assert "9,901 to 10,000 of 10,000 topics" in last
    assert "Next page" not in last


@pytest.mark.parametrize("topic", HOSTILE)
def test_topic_that_looks_like_markup_is_text_in_cells_links_and_forms(topic: str) -> None:
    inventory = inventory_of([f"{topic}-0"])
    for html in (render_topics(inventory, query(pattern=topic)), render_topic(topic, inventory, query()) or ""):
        seen = Seen(html)
        assert "script" not in {tag for tag, _ in seen.tags}
        assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    assert MARKUP not in html


def test_records_are_counted_as_far_as_manifests_were_read() -> None:
    facts = ManifestFacts(manifests=2, record_count=1500, stored_bytes=1, log_bytes=4)
    assert records_text(TierContents(segments=3, facts=facts)) == "1,500 in 2 segments"
    assert records_text(TierContents(segments=2, facts=facts)) == "1,500"
    assert records_text(TierContents(segments=2)) == ""


def test_unknown_topic_has_no_page() -> None:
    assert render_topic("other", inventory_of(["orders-0"]), query()) is None
