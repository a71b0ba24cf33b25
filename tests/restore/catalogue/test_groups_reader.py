"""GroupsReader: follows ``__consumer_offsets`` in a log dir, each record once."""

from pathlib import Path

import pytest

from tests.restore.catalogue.offsets_log import NOW_MS, OffsetsLog, commit
from tierd.restore.catalogue.groups_reader import GroupsReader
from tierd.restore.catalogue.local_partitions import LocalPartitions

HOUR_MS = 3_600_000


class Following:
    """Reader of the log dir that reads as the keeper does."""

    def __init__(self, log_dir: Path, *, max_commits: int = 1000) -> None:
        self.reader = GroupsReader(max_commits=max_commits)
        self._local = LocalPartitions([log_dir], wants=lambda topic: False)

    def follow(self, *, epoch: int = 0, now_ms: int = NOW_MS) -> dict[str, dict[str, int]]:
        """Read what is new, and return the committed offsets by group."""
        found = {each.partition: local for each, local in self._local.find().items()}
        self.reader.lead(dict.fromkeys(found, epoch), now_ms=now_ms)
        for number, local in found.items():
            while self.reader.read(number, local, now_ms=now_ms):
                pass
        return {
            group: {str(partition): position.offset for partition, position in commits.items()}
            for each in self.reader.coordinated(now_ms=now_ms).values()
            for group, commits in each.groups.items()
        }


@pytest.fixture
def offsets(tmp_path: Path) -> OffsetsLog:
    return OffsetsLog(tmp_path)


@pytest.fixture
def following(tmp_path: Path, offsets: OffsetsLog) -> Following:
    return Following(tmp_path)


def test_groups_of_several_partitions_are_read(tmp_path: Path, offsets: OffsetsLog, following: Following) -> None:
    other = OffsetsLog(tmp_path, 1, topic_id=offsets.topic_id)
    offsets.commit(commit(3))
    other.commit(commit(4, group="audit"))
    other.watermark(1, [(offsets.name, 1)])
    assert following.follow() == {"billing": {"orders-0": 3}, "audit": {"orders-0": 4}}


def test_appended_commits_are_read_without_the_earlier_ones(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3))
    following.follow()
    offsets.damage()  # of a batch that was read already
    offsets.commit(commit(5))
    assert following.follow() == {"billing": {"orders-0": 5}}
    assert following.reader.problem == ""


def test_commits_above_the_high_watermark_do_not_count_yet(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3))
    offsets.commit(commit(5))
    offsets.watermark(1)
    assert following.follow() == {"billing": {"orders-0": 3}}
    offsets.watermark(2)
    assert following.follow() == {"billing": {"orders-0": 5}}


def test_commits_of_several_segments_are_read_through_a_roll(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3))
    offsets.roll()
    offsets.commit(commit(5, partition=1))
    assert following.follow() == {"billing": {"orders-0": 3, "orders-1": 5}}


def test_transaction_is_followed_over_two_reads(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3), producer_id=7)
    assert following.follow() == {}
    offsets.end(7)
    assert following.follow() == {"billing": {"orders-0": 3}}


def test_partition_is_read_anew_under_a_new_leader_epoch(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3))
    following.follow()
    offsets.damage()
    assert following.follow(epoch=1) == {}
    assert "__consumer_offsets-0: " in following.reader.problem
    assert "no sound batch from offset 0 on" in following.reader.problem


def test_partition_is_read_anew_after_a_pause_that_may_hide_tombstones(
    offsets: OffsetsLog, following: Following
) -> None:
    offsets.commit(commit(3), commit(4, group="audit"))
    following.follow()
    offsets.roll()
    offsets.commit(commit(5, group="audit"))
    offsets.delete_first_segment()  # as the cleaner leaves nothing of a group that was deleted
    assert following.follow(now_ms=NOW_MS + HOUR_MS) == {"billing": {"orders-0": 3}, "audit": {"orders-0": 5}}
    offsets.commit(commit(6, group="audit"))
    assert following.follow(now_ms=NOW_MS + 3 * HOUR_MS) == {"audit": {"orders-0": 6}}


def test_partition_is_read_anew_where_the_log_start_has_passed_the_position(
    offsets: OffsetsLog, following: Following
) -> None:
    offsets.commit(commit(3))
    following.follow()
    offsets.commit(commit(4, group="audit"))
    offsets.roll()
    offsets.delete_first_segment()
    offsets.commit(commit(5, group="audit"))
    assert following.follow() == {"audit": {"orders-0": 5}}


def test_damaged_partition_is_a_problem_until_it_is_repaired(offsets: OffsetsLog, following: Following) -> None:
    offsets.commit(commit(3))
    offsets.damage()
    assert following.follow() == {}
    assert following.reader.problem
    offsets.damage()
    assert following.follow() == {"billing": {"orders-0": 3}}
    assert following.reader.problem == ""


def test_offsets_that_the_cleaner_emptied_before_the_active_segment_are_passed_over(
    tmp_path: Path, offsets: OffsetsLog, following: Following
) -> None:
    offsets.commit(commit(3))
    (segment,) = offsets.directory.glob("*.log")
    first = segment.read_bytes()
    offsets.commit(commit(None, group="audit"))
    offsets.roll()
    following.follow()
    segment.write_bytes(first)  # the cleaner has removed the tombstone, with its batch
    assert Following(tmp_path).follow() == {"billing": {"orders-0": 3}}
    offsets.commit(commit(5))
    assert following.follow() == {"billing": {"orders-0": 5}}


def test_more_commits_than_the_limit_are_a_problem_and_no_groups(tmp_path: Path, offsets: OffsetsLog) -> None:
    following = Following(tmp_path, max_commits=2)
    offsets.commit(commit(1), commit(1, partition=1), commit(1, partition=2))
    assert following.follow() == {}
    assert "more than 2 committed offsets" in following.reader.problem
    offsets.commit(commit(None))
    assert len(following.follow()["billing"]) == 2


def test_record_that_cannot_be_understood_is_a_problem_beside_the_groups(
    offsets: OffsetsLog, following: Following
) -> None:
    offsets.commit(commit(1), commit(1, version=9))
    assert following.follow() == {"billing": {"orders-0": 1}}
    assert following.reader.problem.startswith("1 records of __consumer_offsets were not understood")
