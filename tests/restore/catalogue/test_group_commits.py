"""GroupCommits: the commits that count, as a broker that loads the partition has them."""

import pytest

from tests.restore.catalogue.offsets_log import NOW_MS, commit, parsed, text
from tierd.log import ControlRecordType, NewRecord, Producer, encode_batch, encode_end_marker
from tierd.model import TopicPartition
from tierd.restore.catalogue.group_commits import GroupCommits

PRODUCER = 7


class Commits(GroupCommits):
    """Commits with a writer of batches at the next offsets."""

    def plain(self, *records: NewRecord) -> None:
        self.apply(parsed(encode_batch(records, base_offset=self.next_offset)))

    def open(self, *records: NewRecord, producer_id: int = PRODUCER) -> None:
        batch = encode_batch(
            records, base_offset=self.next_offset, producer=Producer(producer_id, 0, 0), is_transactional=True
        )
        self.apply(parsed(batch))

    def end(self, kind: ControlRecordType = ControlRecordType.COMMIT, *, producer_id: int = PRODUCER) -> None:
        marker = encode_end_marker(
            kind=kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=self.next_offset,
        )
        self.apply(parsed(marker))

    def offsets(self) -> dict[str, int]:
        """Return the committed offsets under ``group/topic-partition``."""
        return {
            f"{group}/{partition}": position.offset
            for group, positions in self.positions(now_ms=NOW_MS).items()
            for partition, position in positions.items()
        }


@pytest.fixture
def commits() -> Commits:
    return Commits()


def test_the_last_commit_of_each_partition_counts(commits: Commits) -> None:
    commits.plain(commit(3), commit(5, partition=1), commit(4, group="audit"))
    commits.plain(commit(9))
    assert commits.offsets() == {"billing/orders-0": 9, "billing/orders-1": 5, "audit/orders-0": 4}
    assert commits.next_offset == 4


def test_tombstone_removes_the_commit_and_the_group_with_its_last_one(commits: Commits) -> None:
    commits.plain(commit(3), commit(5, group="audit"), commit(None))
    assert commits.positions(now_ms=NOW_MS).keys() == {"audit"}


def test_transactional_commit_counts_once_its_marker_is_read(commits: Commits) -> None:
    commits.plain(commit(3))
    commits.open(commit(8))
    assert commits.offsets() == {"billing/orders-0": 3}
    commits.end()
    assert commits.offsets() == {"billing/orders-0": 8}
    assert len(commits) == 1


def test_aborted_commit_never_counts(commits: Commits) -> None:
    commits.open(commit(8))
    commits.end(ControlRecordType.ABORT)
    commits.open(commit(9, partition=1))
    commits.end()
    assert commits.offsets() == {"billing/orders-1": 9}


def test_marker_of_another_producer_decides_nothing(commits: Commits) -> None:
    commits.open(commit(8))
    commits.end(producer_id=PRODUCER + 1)
    assert commits.offsets() == {}


def test_transactional_commit_gives_way_to_a_plain_commit_written_after_it(commits: Commits) -> None:
    commits.open(commit(8))
    commits.plain(commit(20))
    commits.end()
    assert commits.offsets() == {"billing/orders-0": 20}


def test_tombstone_removes_commits_of_open_transactions_too(commits: Commits) -> None:
    commits.open(commit(8))
    commits.plain(commit(None))
    commits.end()
    assert commits.offsets() == {}


def test_commit_with_a_time_of_expiry_counts_until_then(commits: Commits) -> None:
    commits.plain(commit(3, expire_ms=NOW_MS + 1, version=1))
    assert commits.positions(now_ms=NOW_MS).keys() == {"billing"}
    assert commits.positions(now_ms=NOW_MS + 1) == {}


def test_records_of_other_kinds_are_passed_over_in_silence(commits: Commits) -> None:
    commits.plain(NewRecord(b"\x00\x02" + text("billing"), b"\x00\x03?"), NewRecord(b"\x00\x17?", b"?"), commit(1))
    assert commits.offsets() == {"billing/orders-0": 1}
    assert commits.skipped.count == 0


def test_record_that_cannot_be_understood_is_counted_and_the_others_are_read(commits: Commits) -> None:
    commits.plain(NewRecord(b"\x00\x01", b"?"), commit(1), NewRecord(commit(2).key, b"\x00\x09"))
    assert commits.offsets() == {"billing/orders-0": 1}
    assert (commits.skipped.count, commits.skipped.problem) == (2, "offset 2: version 9 of a committed offset")


def test_position_has_what_the_client_committed(commits: Commits) -> None:
    commits.plain(commit(3))
    position = commits.positions(now_ms=NOW_MS)["billing"][TopicPartition("orders", 0)]
    assert (position.offset, position.leader_epoch, position.metadata, position.committed_ms, position.topic_id) == (
        3,
        -1,
        "",
        NOW_MS,
        None,
    )
