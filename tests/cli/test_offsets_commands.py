"""tierd offsets and tierd cat --from-time, and the chunk cache that reading commands fill."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from tests.cli.conftest import LAST_OFFSET, ROLLED_THROUGH
from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter
from tests.scenarios.installation import Installation
from tierd.app import HostLogs, list_offsets
from tierd.cli.moments import timestamp_ms_of
from tierd.config import TieredLogSettings, load_part
from tierd.errors import RetriableRemoteStorageError
from tierd.model import TopicPartition


def broker_deletes_everything_rolled(log_dir: LogDirWriter) -> None:
    for file in (log_dir.path / "orders-0").glob("*.*"):
        if file.stem.isdigit() and int(file.stem) <= ROLLED_THROUGH and file.suffix != ".snapshot":
            file.unlink()


def test_offsets_as_json_is_the_documented_contract(copied: Installation, log_dir: LogDirWriter) -> None:
    broker_deletes_everything_rolled(log_dir)
    ended = copied.tierd("offsets", "orders-0", "--time", str(FIRST_TIMESTAMP_MS + 2), "--json")
    assert ended.exit_code == 0, ended.output
    nothing = {"leader_epoch": 0, "timestamp_ms": -1}
    assert ended.json() == {
        "earliest": {"offset": 0, **nothing},
        "local": {"offset": ROLLED_THROUGH + 1, **nothing},
        "tiered": {"offset": ROLLED_THROUGH, **nothing},
        "pending": {"offset": ROLLED_THROUGH + 1, **nothing},
        "latest": {"offset": LAST_OFFSET + 1, **nothing},
        "time": {"offset": 2, "leader_epoch": 0, "timestamp_ms": FIRST_TIMESTAMP_MS + 2},
    }


def test_text_output_of_offsets_is_a_table(copied: Installation) -> None:
    ended = copied.tierd("offsets", "orders-0")
    assert ended.exit_code == 0, ended.output
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["tiered", str(ROLLED_THROUGH), "0"] in lines
    assert ["earliest", "0", "0"] in lines


async def test_named_offsets_that_are_not_found_in_time_are_an_error(copied: Installation) -> None:
    settings = load_part(copied.config_file, os.environ, TieredLogSettings)
    in_no_time = settings.fetch.model_copy(update={"timestamp_timeout_s": 1e-9})
    host = HostLogs(settings.model_copy(update={"fetch": in_no_time}), copied.config_file)

    with pytest.raises(RetriableRemoteStorageError, match="search for timestamp -2 did not end within 1e-09 s"):
        await list_offsets(host, TopicPartition("orders", 0), timestamp_ms=None)


def test_fault_of_a_section_that_offsets_and_explain_do_not_need_is_left_to_check_config(
    copied: Installation, log_dir: LogDirWriter
) -> None:
    copied.configure({"expire": {"grace": "soon"}})

    assert copied.tierd("offsets", "orders-0", "--json").json()["tiered"]["offset"] == ROLLED_THROUGH
    assert copied.tierd("explain", "orders-0", "4", "--json").json()["place"] == "both"

    broker_deletes_everything_rolled(log_dir)
    assert copied.tierd("explain", "orders-0", "4", "--json").json()["next_record"] == 4
    assert copied.tierd("offsets", "orders-0", "--time", "0", "--json").json()["time"]["offset"] == 0


def test_cat_begins_at_a_time(copied: Installation, log_dir: LogDirWriter) -> None:
    broker_deletes_everything_rolled(log_dir)
    moment = datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 3) / 1000, UTC).isoformat()
    assert [r["offset"] for r in copied.cat("orders-0", "--from-time", moment, "--to", "4")] == [3, 4]
    assert copied.cat("orders-0", "--from-time", str(FIRST_TIMESTAMP_MS + 1_000_000)) == []


def test_cat_with_two_start_options_is_refused(copied: Installation) -> None:
    ended = copied.tierd("cat", "orders-0", "--from", "1", "--from-time", "2024-05-01")
    assert ended.exit_code == 2
    assert "give one" in ended.output


def test_chunks_of_a_read_are_cached_on_disk_and_damaged_ones_are_fetched_again(
    copied: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    broker_deletes_everything_rolled(log_dir)
    before = copied.cat("orders-0")
    chunks = sorted(tmp_path.glob("tierd/**/chunks/*.chunk"))
    assert len(chunks) == 3
    for chunk in chunks:
        content = bytearray(chunk.read_bytes())
        content[10] ^= 1
        chunk.write_bytes(content)
    assert copied.cat("orders-0") == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1714564800000", 1_714_564_800_000),
        ("2024-05-01T12:00:00Z", 1_714_564_800_000),
        ("2024-05-01T12:00:00", 1_714_564_800_000),
        ("2024-05-01T14:00:00+02:00", 1_714_564_800_000),
        ("2024-05-01", 1_714_521_600_000),
    ],
)
def test_time_is_given_as_milliseconds_or_iso_8601(text: str, expected: int) -> None:
    assert timestamp_ms_of(text) == expected


@pytest.mark.parametrize("text", ["yesterday", "-1", "1969-12-31", "", "12:00"])
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        timestamp_ms_of(text)
