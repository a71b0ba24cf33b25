from dataclasses import replace

import pytest

from tests.log.producer_steps import NOW_MS, data
from tierd.log import BatchHeader, ProducerStateEntry
from tierd.pipeline.rewriting import RewriteRules
from tierd.pipeline.rewriting.batch_disposition import (
    BatchDisposition,
    discards_records,
    disposition_of,
    is_protected,
    needs_horizon,
)

WAITS = 0x40
RULES = RewriteRules(
    now_ms=NOW_MS, delete_retention_ms=10, compacts=True, aborted=(), producers={}, round_end_offset=1000
)


def waiting(batch: BatchHeader, horizon_ms: int) -> BatchHeader:
    return replace(batch, attributes=batch.attributes | WAITS, base_timestamp_ms=horizon_ms)


def known(last_offset: int, *, epoch: int = 0) -> RewriteRules:
    return replace(RULES, producers={1: ProducerStateEntry(1, epoch, 0, last_offset, 0, NOW_MS, 0, -1)})


def test_aborted_data_is_discarded_at_once_and_a_marker_after_its_horizon() -> None:
    written, marker = data(5, 0), data(6, -1, control=True)
    assert discards_records(written, is_discardable=True, now_ms=NOW_MS)
    assert not discards_records(written, is_discardable=False, now_ms=NOW_MS)
    assert not discards_records(marker, is_discardable=True, now_ms=NOW_MS)
    assert discards_records(waiting(marker, NOW_MS), is_discardable=True, now_ms=NOW_MS)
    assert not discards_records(waiting(marker, NOW_MS + 1), is_discardable=True, now_ms=NOW_MS)
    assert not discards_records(waiting(marker, NOW_MS), is_discardable=False, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("batch", "rules", "expected"),
    [
        (data(5, 0, count=3), known(7), True),
        (data(5, 0, count=3), known(8), False),
        (data(5, 0, count=3), RULES, False),
        (data(998, 0, count=2), RULES, True),
        (data(998, 0), RULES, False),
        (data(5, -1, control=True), known(-1), True),
        (data(5, -1, control=True), known(-1, epoch=1), False),
        (data(5, 0), known(-1), False),
        (data(5, -1, producer_id=2, control=True), known(-1), False),
    ],
)
def test_last_batch_of_a_producer_and_last_batch_of_the_round_are_protected(
    batch: BatchHeader, rules: RewriteRules, *, expected: bool
) -> None:
    assert is_protected(batch, rules) is expected


def test_a_horizon_is_set_once_for_tombstones_and_markers_without_data() -> None:
    written, marker = data(5, 0), data(6, -1, control=True)
    assert needs_horizon(written, keeps_tombstone=True, is_discardable=False)
    assert not needs_horizon(written, keeps_tombstone=False, is_discardable=True)
    assert not needs_horizon(waiting(written, 7), keeps_tombstone=True, is_discardable=False)
    assert needs_horizon(marker, keeps_tombstone=False, is_discardable=True)
    assert not needs_horizon(marker, keeps_tombstone=False, is_discardable=False)
    assert not needs_horizon(waiting(marker, 7), keeps_tombstone=False, is_discardable=True)


@pytest.mark.parametrize(
    ("kept", "count", "sets_horizon", "magic", "compacts", "expected"),
    [
        (3, 3, False, 2, True, BatchDisposition.COPIED),
        (3, 3, True, 2, True, BatchDisposition.REWRITTEN),
        (2, 3, False, 2, True, BatchDisposition.REWRITTEN),
        (0, 3, False, 2, True, BatchDisposition.REMOVED),
        (0, 0, False, 2, True, BatchDisposition.REMOVED),
        (0, 0, False, 2, False, BatchDisposition.COPIED),
        (0, 3, False, 2, False, BatchDisposition.REMOVED),
        (3, 3, False, 1, True, BatchDisposition.REWRITTEN),
        (3, 3, False, 1, False, BatchDisposition.COPIED),
        (2, 3, False, 1, False, BatchDisposition.REWRITTEN),
    ],
)
def test_batch_is_copied_rewritten_emptied_or_removed_by_the_rules(
    kept: int, count: int, magic: int, expected: BatchDisposition, *, sets_horizon: bool, compacts: bool
) -> None:
    batch, rules = replace(data(5, 0, count=3), magic=magic), replace(RULES, compacts=compacts)
    assert disposition_of(batch, rules, kept_count=kept, record_count=count, sets_horizon=sets_horizon) is expected


def test_protected_batch_is_emptied_and_an_empty_one_is_copied() -> None:
    for record_count, expected in ((3, BatchDisposition.EMPTIED), (0, BatchDisposition.COPIED)):
        batch = data(5, 0, count=3)
        found = disposition_of(batch, known(7), kept_count=0, record_count=record_count, sets_horizon=False)
        assert found is expected


def test_infinite_retention_sets_the_latest_possible_horizon() -> None:
    assert replace(RULES, delete_retention_ms=(1 << 63) - 1).delete_horizon_ms == (1 << 63) - 1
