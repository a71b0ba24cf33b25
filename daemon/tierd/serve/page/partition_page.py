"""Pages of one partition, what is where as a picture and as a table, and of one of its remote segments."""

from collections.abc import Sequence
from typing import Final

from tierd.model import RemoteLogSegmentMetadata, uuid_to_text
from tierd.serve.page.log_layout import LogRange, PartitionLayout, RangePlace, log_ranges, place_of
from tierd.serve.page.log_picture import PLACE_TEXTS, draw_offsets, draw_times, render_ranges
from tierd.serve.page.markup import (
    Html,
    element,
    joined,
    link,
    moment,
    number_columns,
    number_text,
    path_of,
    section,
    table,
    text_columns,
    with_query,
)
from tierd.serve.page.markup import facts as fact_list
from tierd.serve.page.operations_page import Anchor, help_link
from tierd.serve.page.page_query import ROWS_PER_PAGE, ListQuery, page_of
from tierd.serve.page.problems import PageProblem, partition_problem, render_problems
from tierd.serve.page.topic_pages import ratio_text
from tierd.sizes import human_size

SEGMENTS: Final = "segments"
_COLUMNS: Final = (
    *number_columns("First offset", "Last offset"),
    *text_columns("State"),
    *number_columns("Size", "Records", "Compression"),
    *text_columns("Newest record", "Changed"),
    *number_columns("Epoch"),
    *text_columns("Segment id"),
)
_EPOCH_COLUMNS: Final = number_columns("Leader epoch", "First offset")


def render_partition(facts: PartitionLayout, query: ListQuery) -> Html:
    """Return the content of the page of a partition."""
    ranges = log_ranges(facts)
    marks = {"log start": facts.log_start_offset, "high watermark": facts.high_watermark}
    return joined(
        (
            render_problems(_problems(facts, ranges)),
            _summary(facts),
            section(
                "What is where",
                draw_offsets(ranges, marks),
                section("Over time", draw_times(ranges), level=3),
                section("As a table", render_ranges(ranges, facts.now_ms) if ranges else "", level=3),
            ),
            _segments(facts, query),
        )
    )


def segments_in_order(rows: Sequence[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    """Return segments as the page lists them: the newest offsets first."""
    return sorted(rows, key=lambda row: (-row.end_offset, -row.start_offset, row.event_timestamp_ms))


def _problems(facts: PartitionLayout, ranges: Sequence[LogRange]) -> list[PageProblem]:
    found = [] if facts.status is None else [each for each in (partition_problem(facts.status),) if each is not None]
    if facts.tier_problem:
        found.append(PageProblem(f"the tier's part is not shown: {facts.tier_problem}", Anchor.READY))
    gaps = [each for each in ranges if each.place is RangePlace.GAP]
    if gaps:
        lost = sum(each.end_offset - each.start_offset + 1 for each in gaps)
        found.append(
            PageProblem(
                f"{lost:,} offsets are neither in the tier nor on this host: tierd explain", Anchor.LOST_SEGMENTS
            )
        )
    return found


def _summary(facts: PartitionLayout) -> Html:
    status = facts.status
    finished = [row for row in facts.rows if place_of(row, None) is RangePlace.TIER]
    pairs: list[tuple[str, str]] = [
        ("Log start", number_text(facts.log_start_offset) or "not known"),
        ("High watermark", number_text(facts.high_watermark) or "not known"),
        ("Segments in the tier", number_text(len(finished))),
        ("Size in the tier", f"{human_size(sum(row.size_bytes for row in finished))} before compression"),
        ("Local segments", number_text(len(facts.local))),
    ]
    if status is not None:
        through = status.copied_through
        pairs += [
            ("State", f"{status.state} ({status.role})"),
            ("In the tier up to", "not known" if through is None else number_text(through) or "nothing yet"),
            ("To be copied", f"{status.lag.segments:,} segments, {human_size(status.lag.bytes)}"),
            ("Directory", status.directory),
        ]
    if facts.compacted_to is not None:
        pairs.append(("Compacted up to", number_text(facts.compacted_to)))
    if facts.topic_id:
        pairs.append(("Topic id", facts.topic_id))
    return fact_list(pairs)


def _segments(facts: PartitionLayout, query: ListQuery) -> Html:
    if not facts.rows:
        return section("Segments in the tier", element("p", "None.", class_="quiet"))
    path = path_of("topics", facts.partition.topic, str(facts.partition.partition))
    shown, page = page_of(segments_in_order(facts.rows), query, path, SEGMENTS)
    count_path = with_query(path, page=min(query.page, -(-len(facts.rows) // ROWS_PER_PAGE)), records=1)
    return section(
        "Segments in the tier",
        element(
            "p",
            link(f"{count_path}#{SEGMENTS}", "Count the records of these segments"),
            f" (reads {len(shown):,} manifests from the object store). ",
            link(with_query("/runs", partition=str(facts.partition)), "Deletions of this partition"),
            ".",
        ),
        table(page.text, _COLUMNS, (_segment_cells(row, facts) for row in shown), classes=_classes(shown)),
        page.links,
        id_=SEGMENTS,
    )


def _segment_cells(row: RemoteLogSegmentMetadata, facts: PartitionLayout) -> tuple[str, ...]:
    place, known = place_of(row, facts.compacted_to), facts.manifests.get(row.segment.id)
    state: str = PLACE_TEXTS[place]
    if row.soft_delete is not None:
        state = joined(
            (
                f"{state} ({row.soft_delete.reason.replace('_', ' ')}) until ",
                moment(row.soft_delete.delete_after_ms),
                " ",
                help_link(Anchor.DELETES_NOTHING, "why it stays"),
            )
        )
    return (
        number_text(row.first_readable_offset),
        number_text(row.end_offset),
        state,
        human_size(row.size_bytes),
        "" if known is None else number_text(known.record_count),
        ratio_text(known),
        "none" if row.max_timestamp_ms < 0 else moment(row.max_timestamp_ms),
        moment(row.event_timestamp_ms),
        number_text(row.leader_epoch),
        link(segment_path(row), uuid_to_text(row.segment.id), class_="id"),
    )


def _classes(rows: Sequence[RemoteLogSegmentMetadata]) -> list[str]:
    return ["soon" if row.soft_delete is not None else "" for row in rows]


def find_segment(layout: PartitionLayout, text: str) -> RemoteLogSegmentMetadata | None:
    """Return the segment of that id, in Kafka's 22-character form; None without it."""
    return next((row for row in layout.rows if uuid_to_text(row.segment.id) == text), None)


def segment_path(row: RemoteLogSegmentMetadata) -> str:
    """Return the path of the page of a segment."""
    partition = row.segment.topic_id_partition
    return path_of("topics", partition.topic, str(partition.partition), uuid_to_text(row.segment.id))


def render_segment(layout: PartitionLayout, row: RemoteLogSegmentMetadata) -> Html:
    """Return the content of the page of a segment."""
    others = [each for each in log_ranges(layout) if _is_beside(each, row)]
    return joined(
        (
            _reason(row),
            fact_list(_row_facts(layout, row)),
            section("Manifest", _manifest(layout, row)),
            section("Leader epochs", table("Leader epochs of its offsets", _EPOCH_COLUMNS, _epochs(row))),
            section("Where its offsets are", render_ranges(others, layout.now_ms) if others else ""),
        )
    )


def _reason(row: RemoteLogSegmentMetadata) -> Html:
    if row.soft_delete is None:
        return Html("")
    why = f"this segment leaves the tier: {row.soft_delete.reason.replace('_', ' ')}"
    return render_problems([PageProblem(why, Anchor.DELETES_NOTHING, is_notice=True)])


def _row_facts(layout: PartitionLayout, row: RemoteLogSegmentMetadata) -> list[tuple[str, str]]:
    pairs = [
        ("State", PLACE_TEXTS[place_of(row, layout.compacted_to)]),
        ("First offset", number_text(row.first_readable_offset)),
        ("Last offset", number_text(row.end_offset)),
        ("Size before compression", human_size(row.size_bytes)),
        ("Newest record", "none" if row.max_timestamp_ms < 0 else moment(row.max_timestamp_ms)),
        ("Changed", moment(row.event_timestamp_ms)),
        ("Copied by", f"node {row.broker_id}, leader epoch {row.leader_epoch}"),
        ("Aborted transactions", "none" if row.txn_index_empty else "its transaction index may have some"),
    ]
    if row.soft_delete is not None:
        pairs.append(("Objects stay until", moment(row.soft_delete.delete_after_ms)))
    return pairs


def _manifest(layout: PartitionLayout, row: RemoteLogSegmentMetadata) -> Html:
    known = layout.manifests.get(row.segment.id)
    if known is None:
        read = link(with_query(segment_path(row), records=1), "Read the manifest")
        return element("p", read, " (one request to the object store): records, stored size, compression.")
    pairs = (
        ("Records", number_text(known.record_count)),
        ("Stored, with indexes", human_size(known.stored_bytes)),
        ("Compression", ratio_text(known)),
    )
    return fact_list(pairs)


def _epochs(row: RemoteLogSegmentMetadata) -> list[tuple[str, str]]:
    return [(str(each.epoch), number_text(each.start_offset)) for each in row.segment_leader_epochs]


def _is_beside(each: LogRange, row: RemoteLogSegmentMetadata) -> bool:
    overlaps = each.start_offset <= row.end_offset and each.end_offset >= row.first_readable_offset
    return overlaps and each.place is not RangePlace.GAP
