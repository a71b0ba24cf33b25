"""The file of what a standby knows after a restart, and the settings of its topics."""

from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import StateDirError
from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.follower.rules.assignment_book import KeptReplica
from tierd.replication.follower.rules.followed_partition import LeaderClaim
from tierd.replication.follower.standby_memory import FILE_NAME, StandbyMemory
from tierd.replication.follower.standby_topics import StandbyTopics

REPLICA = KeptReplica(TopicIdPartition(UUID(int=1), "orders", 3), LeaderClaim(2, 9))
MEMORY = StandbyMemory(
    replicas=(REPLICA,),
    synced_at_ms={TopicPartition("orders", 3): 1_700_000_000_000},
    topics={"orders": {"cleanup.policy": "compact"}},
    retired=(UUID(int=5),),
)


def test_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    MEMORY.save(tmp_path)
    assert StandbyMemory.load(tmp_path) == MEMORY


def test_missing_file_is_an_empty_memory(tmp_path: Path) -> None:
    assert StandbyMemory.load(tmp_path) == StandbyMemory()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "replicas": [{}]}', b"\xff"])
def test_damaged_file_is_an_empty_memory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert StandbyMemory.load(tmp_path) == StandbyMemory()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_memory_or_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        StandbyMemory.decode(content)


def test_file_that_cannot_be_written_is_an_error_of_the_state_directory(tmp_path: Path) -> None:
    with pytest.raises(StateDirError):
        MEMORY.save(tmp_path / "missing")


def topics(**settings: str) -> StandbyTopics:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return StandbyTopics({"orders": named} if settings else {}, flush="never", flush_interval_s=1)


def test_topic_without_known_settings_is_kept_for_ever() -> None:
    announced_without = topics()
    announced_without.update("orders", {})
    remembered_without = StandbyTopics({"orders": {}}, flush="never", flush_interval_s=1)
    for known in (topics(), announced_without, remembered_without):
        config = known.config_for("orders")
        assert (config.retention_ms, config.retention_bytes, config.is_compacted) == (-1, -1, False)
        assert not known.is_known("orders")
    announced_without.update("orders", {"cleanup.policy": "compact"})
    assert announced_without.is_known("orders")


def test_settings_of_the_leader_are_those_of_the_log() -> None:
    config = topics(cleanup_policy="compact,delete", retention_ms="5000").config_for("orders")
    assert (config.is_compacted, config.retention_ms) == (True, 5000)


def test_setting_that_a_log_does_not_know_or_cannot_have_is_left_out() -> None:
    config = topics(min_insync_replicas="2", retention_ms="soon", segment_bytes="5000").config_for("orders")
    assert (config.retention_ms, config.segment_bytes) == (604_800_000, 5000)


def test_tiered_topic_is_kept_until_the_log_start_of_the_leader_rises() -> None:
    config = topics(remote_storage_enable="true", retention_ms="9000", local_retention_ms="50").config_for("orders")
    assert (config.remote_storage_enable, config.retention_ms, config.retention_bytes) == (False, -1, -1)


def test_flush_at_intervals_is_a_setting_of_every_log() -> None:
    every = StandbyTopics({"orders": {"flush.ms": "100"}}, flush="interval", flush_interval_s=2)
    assert every.config_for("orders").flush_ms == 100
    assert every.config_for("other").flush_ms == 2000


def test_update_says_whether_the_settings_of_the_logs_change() -> None:
    known = topics(retention_ms="5000")
    assert not known.update("orders", {"retention.ms": "5000", "min.insync.replicas": "1"})
    assert known.update("orders", {"retention.ms": "6000"})
    assert known.config_for("orders").retention_ms == 6000
