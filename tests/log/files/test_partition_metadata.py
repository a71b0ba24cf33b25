from pathlib import Path
from uuid import UUID

import pytest

from tests.coded import coded
from tests.log.batches import TOPIC_ID, TOPIC_ID_TEXT
from tests.log.logs import NOW_MS, lead, open_log, records
from tierd.errors import LogError, TierErrorCode
from tierd.log.files.disk import OsDisk
from tierd.log.files.offline import OfflineFlag
from tierd.log.files.partition_metadata import PartitionMetadataFile
from tierd.log.loading.log_loader import LoadRequest, load_log
from tierd.log.log_errors import CheckpointError
from tierd.log.records.log_config import LogConfig

OTHER_ID = UUID(int=7)


@pytest.fixture
def file(tmp_path: Path) -> PartitionMetadataFile:
    return PartitionMetadataFile(OsDisk(), tmp_path)


@pytest.mark.spec("log-format DIR-27")
@pytest.mark.spec("log-format DIR-28")
@pytest.mark.spec("log-format DIR-35")
def test_recorded_topic_id_is_written_by_the_next_flush(file: PartitionMetadataFile, tmp_path: Path) -> None:
    file.record(TOPIC_ID)
    assert (file.is_pending, file.exists) == (True, False)
    file.maybe_flush()
    assert (file.is_pending, file.exists) == (False, True)
    assert file.path.read_bytes() == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}".encode()
    assert PartitionMetadataFile(OsDisk(), tmp_path).read() == TOPIC_ID
    assert [path.name for path in tmp_path.iterdir()] == ["partition.metadata"]


def test_flush_without_a_topic_id_creates_no_file(file: PartitionMetadataFile) -> None:
    file.maybe_flush()
    assert not file.exists
    with pytest.raises(FileNotFoundError):
        file.read()


@pytest.mark.spec("log-format DIR-29")
def test_topic_id_file_moves_with_a_renamed_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    old = log.directory
    log.rename_directory("orders-0.1234567890abcdef1234567890abcdef-delete")
    assert not old.exists()
    assert PartitionMetadataFile(OsDisk(), log.directory).read() == TOPIC_ID
    assert log.topic_id == TOPIC_ID


@pytest.mark.spec("log-format DIR-31")
def test_log_without_kept_metadata_has_no_topic_id(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    log = load_log(
        OsDisk(),
        tmp_path / "orders-0",
        LoadRequest(
            config=LogConfig(), keep_partition_metadata=False, clean=True, log_start_offset=0, recovery_point=0
        ),
        now_ms=NOW_MS,
        offline=OfflineFlag(tmp_path),
        random_int=lambda: 0,
    )
    log.assign_topic_id(TOPIC_ID)
    lead(log, records())
    log.close()
    assert log.topic_id is None
    assert not (tmp_path / "orders-0" / "partition.metadata").exists()


def test_second_topic_id_is_refused_while_another_waits_to_be_written(file: PartitionMetadataFile) -> None:
    file.record(TOPIC_ID)
    file.record(TOPIC_ID)
    with pytest.raises(
        LogError, check=coded(TierErrorCode.INCONSISTENT_TOPIC_ID), match=r"not 00000000-0000-0000-0000-000000000007"
    ):
        file.record(OTHER_ID)


def test_all_zero_topic_id_is_refused(file: PartitionMetadataFile) -> None:
    with pytest.raises(ValueError, match="all-zero"):
        file.record(UUID(int=0))


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"version: 0", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"])
def test_content_that_is_no_topic_id_is_refused(file: PartitionMetadataFile, content: bytes) -> None:
    file.path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        file.read()
