"""FetchTask for readers of committed records: requests and records for a log of transactions in the tier."""

from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.log.logs import NOW_MS, TransactionalProducers
from tests.tiering.reading.test_fetch_task import CountingStorage
from tests.tiering.setups import Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.log import LogConfig, committed_batches, iter_batches, opened_partition
from tierd.model import IndexType, IsolationLevel
from tierd.tiering import Tier
from tierd.tiering.reading.fetch_result import FetchResult

SEGMENTS = 6
TOPIC_ID = UUID(int=248)

# One batch of one record, and one segment, each: "-" is a record without a transaction, "A" one in the transaction of
# producer A, "A+" the marker that commits it and "A!" the one that aborts it.
LAYOUTS = [
    pytest.param("A B A! B+ A A+", {1, 4}, {2}, id="one aborted between committed ones"),
    pytest.param("A A! A A! A A!", set[int](), {1, 3, 5}, id="all aborted"),
    pytest.param("A - B B+ - A!", {1, 2, 4}, {5}, id="aborted by the last marker"),
    pytest.param("A B A+ - B+ -", {0, 1, 3, 5}, set[int](), id="none aborted"),
]


class Committed:
    """Partition that its leader wrote and rolled entry by entry; only its active segment is on local disk."""

    def __init__(self, tmp_path: Path, layout: str) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka").path
        self.path = log_dir / "payments-0"
        with opened_partition(self.path, config=LogConfig(), now_ms=NOW_MS, create_with=TOPIC_ID) as log:
            log.assign_leader_epoch(0, 0)
            TransactionalProducers(log).append_each_rolled(layout.split())
        self.storage = CountingStorage(stores := Stores(tmp_path, [log_dir]))
        self.session: Session = stores.session(storage=lambda _: self.storage)

    async def copied(self) -> "Committed":
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        assert self.session.finished(partition_of(self.path)) == [(n, n) for n in range(SEGMENTS)]
        for base in range(SEGMENTS):
            delete_segment(self.path, base)
        return self

    def asked_for_aborts(self) -> set[int]:
        """Return the base offsets of the segments whose transaction index was fetched."""
        asked = zip(self.storage.indexes, self.storage.indexed_segments, strict=True)
        return {base for index_type, base in asked if index_type is IndexType.TRANSACTION}

    def assert_cheap(self) -> None:
        assert SEGMENTS <= len(self.storage.ranges) <= 2 * SEGMENTS
        fetched = Counter(self.storage.indexes)
        assert {t: n for t, n in fetched.items() if n > 2 * SEGMENTS} == {}


@pytest.mark.spec("remote-tiering 248")
@pytest.mark.parametrize(("layout", "committed", "indexed"), LAYOUTS)
async def test_committed_reader_returns_the_committed_records_and_fetches_no_empty_index(
    tmp_path: Path, layout: str, committed: set[int], indexed: set[int]
) -> None:
    setup = await Committed(tmp_path, layout).copied()
    found = await setup.session.read_all(setup.path, IsolationLevel.READ_COMMITTED)
    assert [record.offset for record in found] == [*sorted(committed), SEGMENTS]
    assert setup.asked_for_aborts() == indexed
    setup.assert_cheap()


@pytest.mark.spec("remote-tiering 248")
@pytest.mark.parametrize("is_one_reader", [True, False], ids=["one reader", "a new reader for each"])
@pytest.mark.parametrize(("layout", "committed", "indexed"), LAYOUTS)
async def test_consecutive_fetches_cost_no_more_than_two_requests_a_segment(
    tmp_path: Path, layout: str, committed: set[int], indexed: set[int], *, is_one_reader: bool
) -> None:
    setup = await Committed(tmp_path, layout).copied()
    reader = setup.session.reader(setup.path)
    offset, found = 0, list[int]()
    while offset < SEGMENTS:
        result = await reader.read(offset, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
        assert (result.tier, result.base_offset, result.next_offset) == (Tier.REMOTE, offset, offset + 1)
        found += _offsets(result)
        offset = result.next_offset
        reader = reader if is_one_reader else setup.session.reader(setup.path)
    assert found == sorted(committed)
    assert setup.asked_for_aborts() == indexed
    setup.assert_cheap()


def _offsets(result: FetchResult) -> list[int]:
    """Return the offsets that a consumer takes from one answer, without knowledge of earlier answers."""
    batches = iter_batches(result.data, name="answer")
    return [record.offset for batch in committed_batches(batches, result.aborted) for record in batch.records()]
