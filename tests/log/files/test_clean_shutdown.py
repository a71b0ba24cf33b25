from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.log.files.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    delete_clean_shutdown,
    encode_clean_shutdown,
    has_clean_shutdown,
    parse_broker_epoch,
    read_broker_epoch,
    write_clean_shutdown,
)
from tierd.log.files.disk import OsDisk

DISK = OsDisk()


@pytest.mark.spec("log-format DIR-24")
def test_the_broker_epoch_is_written_and_read(tmp_path: Path) -> None:
    assert not has_clean_shutdown(DISK, tmp_path)
    write_clean_shutdown(DISK, tmp_path, broker_epoch=1234567890123)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes() == b'{"version":0,"brokerEpoch":1234567890123}'
    assert has_clean_shutdown(DISK, tmp_path)
    assert read_broker_epoch(DISK, tmp_path) == 1234567890123
    write_clean_shutdown(DISK, tmp_path)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes() == b'{"version":0,"brokerEpoch":-1}'


@pytest.mark.spec("log-format DIR-24")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"[1]",
        b"{}",
        b'{"brokerEpoch":"1"}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b"\xff\xfe",
        b"[" * 20_000,
        b" " * 100_000,
    ],
)
def test_a_marker_without_an_epoch_is_a_marker(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_bytes(content)
    assert has_clean_shutdown(DISK, tmp_path)
    assert read_broker_epoch(DISK, tmp_path) is None


def test_unknown_fields_of_a_marker_are_ignored() -> None:
    assert parse_broker_epoch(b'{"version":7,"new":[],"brokerEpoch":5}') == 5


def test_second_deletion_of_the_marker_reports_that_it_is_missing(tmp_path: Path) -> None:
    write_clean_shutdown(DISK, tmp_path, broker_epoch=1)
    assert delete_clean_shutdown(DISK, tmp_path)
    assert not delete_clean_shutdown(DISK, tmp_path)
    assert read_broker_epoch(DISK, tmp_path) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_broker_epoch_is_read_as_it_was_written(broker_epoch: int) -> None:
    assert parse_broker_epoch(encode_clean_shutdown(broker_epoch)) == broker_epoch


@given(st.binary(max_size=80))
def test_parse_of_any_bytes_returns_a_broker_epoch_or_none(data: bytes) -> None:
    parse_broker_epoch(data)
