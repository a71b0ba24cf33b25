"""Page of one partition: the picture, the same in words, and the segments."""

import re

from tests.serve.page.page_values import FINISHED, NOW_MS, facts_of, row, status_of
from tests.serve.page.test_markup import Seen
from tierd.model import uuid_to_text
from tierd.serve.page.log_layout import log_ranges
from tierd.serve.page.log_picture import MOST_RANGES, draw_offsets, draw_times
from tierd.serve.page.page_query import ROWS_PER_PAGE, ListQuery
from tierd.serve.page.partition_page import find_segment, render_partition, render_segment
from tierd.tiering import ManifestFacts


def bars(svg: str) -> list[tuple[str, float, float]]:
    """Return class, begin and end of every bar."""
    found = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)" height="\d+" class="(\w+)"><title>', svg)
    return [(kind, float(x), float(x) + float(width)) for x, width, kind in found]


def test_every_kind_of_range_is_drawn_in_its_place() -> None:
    drawn = bars(draw_offsets(log_ranges(facts_of()), {}))
    assert [kind for kind, _, _ in drawn] == [
        *("local", "active", "copying", "waiting", "tier", "compacted", "compacted", "expired", "replaced"),
        *("standby", "gap"),
    ]
    by_kind = {kind: (x, end) for kind, x, end in drawn}
    scale = (by_kind["active"][1] - by_kind["expired"][0]) / 420
    assert abs(by_kind["gap"][0] - (by_kind["expired"][0] + 100 * scale)) < 2
    assert abs(by_kind["gap"][1] - (by_kind["expired"][0] + 150 * scale)) < 2


def test_one_offset_among_billions_is_seen_and_stays_inside() -> None:
    far = 5_000_000_000
    drawn = bars(draw_offsets(log_ranges(facts_of(rows=(row(0, 0), row(far, far)), local=(), standbys=())), {}))
    assert all(end - x >= 2 for _, x, end in drawn)
    assert max(end for _, _, end in drawn) <= 1000


def test_picture_over_time_leaves_out_what_tells_no_time() -> None:
    kinds = {kind for kind, _, _ in bars(draw_times(log_ranges(facts_of())))}
    assert {"local", "tier", "expired"} <= kinds
    assert not {"standby", "gap"} & kinds


def test_picture_has_a_name_and_a_description_and_a_table_says_the_same() -> None:
    html = render_partition(facts_of(), ListQuery())
    seen = Seen(html)
    images = [attributes for tag, attributes in seen.tags if attributes.get("role") == "img"]
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    assert len(images) == 2
    assert all(set(str(each["aria-labelledby"]).split()) <= ids for each in images)
    for text in ("gap: nowhere", "on a standby, node 2", "rolled, waits for its copy", "replaced by compaction"):
        assert text in seen.words
    assert "What is where, by offsets" in seen.words


def test_gap_and_quarantine_lead_to_their_sections() -> None:
    status = status_of("orders-0", "quarantined", last_error="torn batch", remedy="run tierd inspect")
    html = render_partition(facts_of(status=status), ListQuery())
    assert "50 offsets are neither in the tier nor on this host" in html
    assert 'href="/help/tierdlostsegments"' in html
    assert "torn batch; run tierd inspect" in html
    assert 'href="/help/errors"' in html


def test_store_that_is_down_leaves_the_local_part_and_says_why() -> None:
    html = render_partition(facts_of(rows=(), tier_problem="the metadata store did not answer"), ListQuery())
    assert "the tier&#x27;s part is not shown: the metadata store did not answer" in html
    assert [kind for kind, _, _ in bars(html)].count("local") == 2  # over offsets and over time


def test_segments_have_pages_and_counted_records() -> None:
    rows = tuple(row(10 * n, 10 * n + 9) for n in range(250))
    known = {each.segment.id: ManifestFacts(record_count=7, stored_bytes=5, log_bytes=10) for each in rows[-1:]}
    html = render_partition(facts_of(rows=rows, manifests=known), ListQuery(page=3))
    assert "201 to 250 of 250 segments" in html
    first = render_partition(facts_of(rows=rows, manifests=known), ListQuery())
    assert f"1 to {ROWS_PER_PAGE} of 250 segments" in first
    assert '<td class="n">7</td><td class="n">2.00</td>' in first
    assert "records=1" in first


def test_log_of_very_many_ranges_is_a_bounded_page() -> None:
    rows = tuple(row(20 * n, 20 * n + 9) for n in range(5000))
    html = render_partition(facts_of(rows=rows, local=(), standbys=(), compacted_to=None), ListQuery())
    assert len(bars(html)) <= 3 * MOST_RANGES
    assert len(html) < 400_000


def test_segment_in_its_grace_says_why_it_leaves_and_where_else_its_offsets_are() -> None:
    layout = facts_of()
    replaced = layout.rows[2]
    words = Seen(render_segment(layout, replaced)).words
    for text in ("this segment leaves the tier: replaced", "in the tier, compacted", "on a standby, node 2"):
        assert text in words
    assert "in the local log" not in words
    assert find_segment(layout, uuid_to_text(replaced.segment.id)) is replaced
    assert find_segment(layout, "<script>") is None


def test_timestamp_that_no_calendar_has_is_shown_as_a_number() -> None:
    far = (row(0, 9, FINISHED, time_ms=10**17), row(10, 19, time_ms=NOW_MS))
    assert "100000000000000" in render_partition(facts_of(rows=far), ListQuery())


def test_partition_of_a_standby_host_has_no_status_and_a_page() -> None:
    facts = facts_of(status=None, rows=(), local=(), log_start_offset=None)
    assert "on a standby, node 2" in render_partition(facts, ListQuery())
