"""One partition opened in a log dir that no process uses."""

from pathlib import Path
from uuid import uuid4

from tests.log.logs import NOW_MS, records
from tierd.log import LogConfig, opened_partition
from tierd.log.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from tierd.log.files.disk import OsDisk
from tierd.model import TopicPartition

PARTITION = TopicPartition("orders", 0)


def test_new_partition_begins_at_zero_although_checkpoints_name_an_older_one(tmp_path: Path) -> None:
    for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
        write_offset_checkpoint(OsDisk(), tmp_path / name, {PARTITION: 100})
    directory = tmp_path / str(PARTITION)
    with opened_partition(directory, config=LogConfig(), now_ms=NOW_MS, create_with=uuid4()) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert not read_offset_checkpoint(tmp_path / LOG_START_OFFSET_CHECKPOINT)


def test_checkpoints_that_cannot_be_read_are_written_anew(tmp_path: Path) -> None:
    directory = tmp_path / str(PARTITION)
    with opened_partition(directory, config=LogConfig(), now_ms=NOW_MS, create_with=uuid4()) as log:
        log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (tmp_path / name).write_bytes(b"garbage")
    with opened_partition(directory, config=LogConfig(), now_ms=NOW_MS) as log:
        log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {PARTITION: 2}
