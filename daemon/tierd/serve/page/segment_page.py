"""Page of one remote segment: what its row and its manifest say, and where else its offsets are."""

from typing import Final

from tierd.model import RemoteLogSegmentMetadata, uuid_to_text
from tierd.serve.page.log_layout import LogRange, PartitionLayout, RangePlace, log_ranges, place_of
from tierd.serve.page.log_picture import PLACE_TEXTS, render_ranges
from tierd.serve.page.markup import (
    Column,
    Html,
    element,
    joined,
    link,
    moment,
    number_text,
    path_of,
    section,
    table,
    with_query,
)
from tierd.serve.page.markup import (
    facts as fact_list,
)
from tierd.serve.page.operations_page import Anchor
from tierd.serve.page.problems import PageProblem, render_problems
from tierd.serve.page.topic_pages import ratio_text
from tierd.sizes import human_size

_COLUMNS: Final = (Column("Leader epoch", is_number=True), Column("First offset", is_number=True))


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
            section("Leader epochs", table("Leader epochs of its offsets", _COLUMNS, _epochs(row))),
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
