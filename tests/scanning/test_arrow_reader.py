"""``tierd.reader`` over a small tier: ranges, columns, reuse, leaving, closing."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tests.scanning.rows import offsets_of
from tierd.errors import OffsetOutOfRangeError, ScanRequestError, TierError, UnknownPartitionError
from tierd.loop_thread import LoopThread
from tierd.scanning.arrow_reader import ArrowReader, ScanProgress
from tierd.scanning.row_layout import RowLayout

EVERYTHING = [(0, n) for n in range(47)] + [(1, n) for n in range(20)]
SMALL_BATCHES = 1 << 10  # some 17 of these records


def at_second(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tierd-reader")]


def test_scan_has_the_columns_of_sparks_kafka_source_and_the_leader_epoch(tier: ArrowReader) -> None:
    table = tier.scan("orders", partitions=[0], start=3, end=4).to_table()
    assert {field.name: str(field.type) for field in table.schema} == {
        "key": "binary",
        "value": "binary",
        "topic": "dictionary<values=string, indices=int32, ordered=0>",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[ms, tz=UTC]",
        "timestampType": "int32",
        "headers": "list<item: struct<key: string, value: binary>>",
        "leaderEpoch": "int32",
    }
    assert table.to_pylist() == [
        {
            "key": b"k0",
            "value": b"v3",
            "topic": "orders",
            "partition": 0,
            "offset": 3,
            "timestamp": at_second(3),
            "timestampType": 0,
            "headers": [{"key": "n", "value": b"3"}],
            "leaderEpoch": 0,
        }
    ]


def test_scan_reads_tier_and_host_as_one_log_partition_by_partition(tier: ArrowReader) -> None:
    assert offsets_of(tier.scan("orders").to_table()) == EVERYTHING


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start": 45}, [(0, 45), (0, 46)]),
        ({"start": {0: 44, 1: 18}, "end": {0: 46, 1: 1_000}}, [(0, 44), (0, 45), (1, 18), (1, 19)]),
        ({"partitions": [1], "end": 2}, [(1, 0), (1, 1)]),
        ({"start": "latest"}, []),
        ({"start": 10, "end": 10}, []),
        ({"start": 10, "end": 5}, []),
        ({"start": at_second(18), "end": at_second(21)}, [(0, 18), (0, 19), (0, 20), (1, 18), (1, 19)]),
        ({"start": at_second(45), "end": "latest"}, [(0, 45), (0, 46)]),
        ({"start": at_second(99)}, []),
        ({"partitions": []}, []),
    ],
)
def test_scan_reads_the_range_that_was_asked_for(
    tier: ArrowReader, arguments: dict[str, object], expected: list[tuple[int, int]]
) -> None:
    assert offsets_of(tier.scan("orders", **arguments).to_table()) == expected  # type: ignore[arg-type]


def test_scan_waits_for_the_compiled_kernel_before_each_range(
    tier: ArrowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the thread that loads it, the reference read the first two million records a third as fast."""
    waited_for: list[int] = []

    async def wait(count: int) -> None:
        waited_for.append(count)

    monkeypatch.setattr("tierd.scanning.range_rows.compile_kernels_for", wait)
    scan = tier.scan("orders")
    assert sum(batch.num_rows for batch in scan) > 0
    assert waited_for == [each.offset_count for each in scan.ranges]


def test_scan_of_many_partitions_waits_for_the_compiled_kernel_as_for_one(
    tier: ArrowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition alone may have too few records for a wait."""
    waited_for: list[int] = []

    async def wait(count: int) -> None:
        waited_for.append(count)

    monkeypatch.setattr("tierd.scanning.tier_scanner.compile_kernels_for", wait)
    scan = tier.scan("orders")
    assert sum(batch.num_rows for batch in scan) > 0
    assert len(scan.ranges) > 1
    assert waited_for == [sum(each.offset_count for each in scan.ranges)]


def test_scan_used_again_gives_the_same_rows_while_the_log_grows(small: SmallTier, tier: ArrowReader) -> None:
    scan = tier.scan("orders")
    first = scan.to_table()
    small.append(5)
    small.log_dir.write_checkpoints()
    assert scan.to_table() == first
    assert offsets_of(tier.scan("orders", partitions=[0], start=47).to_table()) == [(0, n) for n in range(47, 52)]


def test_selection_of_columns_leaves_the_scan_as_it_was(tier: ArrowReader) -> None:
    scan = tier.scan("orders", columns=["offset", "value", "partition"])
    narrow = scan.select("value")
    assert narrow.schema.names == ["value"]
    assert narrow.to_table().column("value").to_pylist()[:2] == [b"v0", b"v1"]
    assert scan.to_table().column_names == ["offset", "value", "partition"]
    assert offsets_of(scan.to_table()) == EVERYTHING


def test_two_scans_at_once_do_not_disturb_each_other(tier: ArrowReader) -> None:
    scan = tier.scan("orders", batch_bytes=SMALL_BATCHES)
    pairs = list(zip(scan, scan, strict=True))
    assert len(pairs) > 4
    assert all(left == right for left, right in pairs)


def test_scans_in_several_threads_give_the_same_rows(tier: ArrowReader) -> None:
    scan = tier.scan("orders", batch_bytes=SMALL_BATCHES)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: scan.to_table(), range(8)))
    assert all(offsets_of(table) == EVERYTHING for table in tables)


def test_batches_keep_to_the_size_that_was_asked_for(tier: ArrowReader) -> None:
    batches = list(tier.scan("orders", batch_bytes=SMALL_BATCHES))
    assert all(batch.num_rows > 0 and batch.nbytes <= SMALL_BATCHES for batch in batches)
    assert offsets_of(pa.Table.from_batches(batches)) == EVERYTHING


def test_progress_reports_every_batch_up_to_the_last_offset(tier: ArrowReader) -> None:
    seen: list[ScanProgress] = []
    batches = list(tier.scan("orders", batch_bytes=SMALL_BATCHES, on_progress=seen.append))
    assert len(seen) in (len(batches), len(batches) + 1)
    assert [each.offsets_done for each in seen] == sorted(each.offsets_done for each in seen)
    last = seen[-1]
    assert (last.partition, last.records, last.offsets_done, last.offset_count) == (1, 67, 67, 67)
    assert last.size_bytes == sum(batch.nbytes for batch in batches)


def test_callback_that_fails_ends_the_read(tier: ArrowReader) -> None:
    def stop(_: ScanProgress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        tier.scan("orders", on_progress=stop).to_table()
    assert not tier._thread._streams


@pytest.mark.parametrize(
    "leave",
    [
        lambda scan: next(iter(scan)),
        lambda scan: scan.to_reader().read_next_batch(),
        lambda scan: pa.RecordBatchReader.from_stream(scan).read_next_batch(),
    ],
    ids=["loop", "reader", "capsule"],
)
def test_read_that_is_left_early_is_closed(tier: ArrowReader, leave: Callable[[object], object]) -> None:
    scan = tier.scan("orders", batch_bytes=SMALL_BATCHES)
    leave(scan)
    gc.collect()
    assert not tier._thread._streams
    assert tier._thread.call(running()) == ["tierd reader"]
    assert offsets_of(scan.to_table()) == EVERYTHING


async def running() -> list[str]:
    """Return the names of the other tasks of the loop."""
    return sorted(task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()})


def test_closed_reader_leaves_no_thread_and_refuses_its_scans(small: SmallTier) -> None:
    with tierd.reader(small.installation.config_file) as tier:
        scan = tier.scan("orders", batch_bytes=SMALL_BATCHES)
        batches = iter(scan)
        next(batches)
        assert threads()
    assert not threads()
    tier.close()
    for use in (lambda: next(batches), scan.to_table, lambda: tier.scan("orders"), tier.topics):
        with pytest.raises(ScanRequestError, match="the reader of the tier was closed"):
            use()


def test_reader_that_is_closed_ends_a_read_in_another_thread(small: SmallTier) -> None:
    tier = tierd.reader(small.installation.config_file)
    begun = threading.Event()

    def read_again_and_again() -> None:
        while True:
            tier.scan("orders", batch_bytes=SMALL_BATCHES, on_progress=lambda _: begun.set()).to_table()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_again_and_again)
        begun.wait(30)
        tier.close()
        with pytest.raises(ScanRequestError, match="was closed"):
            reading.result(30)
    assert not threads()


def test_read_that_is_closed_at_the_moment_of_a_call_does_not_end_as_if_it_had_all(
    tier: ArrowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, plan = LoopThread.begin, tier.scan("orders", batch_bytes=SMALL_BATCHES)._plan
    with tier._thread.reading(plan, RowLayout.of(None, batch_bytes=SMALL_BATCHES)) as stream:
        assert stream.next() is not None

        def begin_after_a_close(loop: LoopThread, work: Coroutine[Any, Any, object]) -> object:
            if getattr(work, "__name__", "") == "_next":
                stream.close()
            return begin(loop, work)

        monkeypatch.setattr(LoopThread, "begin", begin_after_a_close)
        with pytest.raises(ScanRequestError, match="was closed"):
            stream.next()


IN_A_FORK = """
import os, sys, tierd
from tierd.errors import ScanRequestError

tier = tierd.reader(sys.argv[1])
scan = tier.scan("orders", batch_bytes=1024)
begun = iter(scan)
next(begun)
child = os.fork()
if not child:
    for use in (lambda: next(begun), scan.to_table, lambda: tier.scan("orders"), tier.topics):
        try:
            use()
        except ScanRequestError as error:
            print(error, *error.__notes__, flush=True)
    tier.close()
    del begun, scan, tier
    print("closed", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(1 + sum(1 for _ in begun) == sum(1 for _ in scan), scan.to_table().num_rows, flush=True)
tier.close()
"""


def test_reader_in_a_forked_process_is_refused_and_goes_on_in_the_parent(small: SmallTier) -> None:
    run = subprocess.run(
        [sys.executable, "-c", IN_A_FORK, small.installation.config_file],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    *refused, closed, rest = run.stdout.splitlines()
    assert len(refused) == 4
    assert {line.split(" open ")[0] for line in refused} == {
        "the reader of the tier was opened by the parent of this process"
    }
    assert (closed, rest) == ("closed", f"True {len(EVERYTHING)}")


def test_reader_without_a_close_ends_with_its_last_reference(small: SmallTier) -> None:
    tier = tierd.reader(small.installation.config_file)
    next(iter(tier.scan("orders")))
    assert threads()
    del tier
    gc.collect()
    assert not threads()


async def test_reader_works_inside_a_running_event_loop(small: SmallTier) -> None:
    with tierd.reader(small.installation.config_file) as tier:
        assert offsets_of(tier.scan("orders").to_table()) == EVERYTHING


@pytest.mark.parametrize(
    ("arguments", "kind", "problem", "remedy"),
    [
        ({"topic": "order"}, UnknownPartitionError, "did you mean orders", "topics"),
        ({"partitions": [2]}, UnknownPartitionError, "knows orders-2", "0, 1"),
        ({"partitions": 0}, ScanRequestError, "partitions=0 has no numbers", "[0, 1]"),
        ({"partitions": "0"}, ScanRequestError, "partitions='0' has no numbers", "[0, 1]"),
        ({"partitions": ["0"]}, ScanRequestError, "has no numbers", "[0, 1]"),
        ({"partitions": [0.0]}, ScanRequestError, "has no numbers", "[0, 1]"),
        ({"partitions": [True]}, ScanRequestError, "has no numbers", "[0, 1]"),
        ({"columns": ["ofset"]}, ScanRequestError, "no column ofset; the nearest is offset", "key, value"),
        ({"columns": []}, ScanRequestError, "empty", "key, value"),
        ({"columns": ["key", "key"]}, ScanRequestError, "twice", "key, value"),
        ({"isolation": "committed"}, ScanRequestError, "'committed' is no isolation level", "read_committed"),
        ({"batch_bytes": 0}, ScanRequestError, "batch_bytes=0", "bytes"),
        ({"start": -3}, ScanRequestError, "start: -3 is no offset", "offset"),
        ({"end": "now"}, ScanRequestError, "end='now' is no position", "latest"),
        ({"topic_id": "x"}, ScanRequestError, "topic_id: 'x' is not a 22-character", "topics"),
    ],
)
def test_request_without_a_meaning_is_refused_with_its_remedy_in_the_traceback(
    tier: ArrowReader, arguments: dict[str, object], kind: type[TierError], problem: str, remedy: str
) -> None:
    with pytest.raises(kind, match=problem) as refused:
        tier.scan(**{"topic": "orders", **arguments})  # type: ignore[arg-type]
    assert remedy in refused.value.remedy
    assert refused.value.remedy in refused.value.__notes__


def test_offsets_and_partitions_of_a_data_frame_are_taken(tier: ArrowReader) -> None:
    frame = tier.scan("orders").select("partition", "offset").to_table().to_pandas()
    number, last = frame["partition"].max(), frame["offset"].max()
    found = tier.scan(
        "orders", partitions=list(frame["partition"].unique()[:1]), start=last - 1, end={0: last, number: last}
    )
    assert offsets_of(found.to_table()) == [(0, int(last) - 1)]


def test_start_below_the_log_start_is_refused(small: SmallTier, tier: ArrowReader) -> None:
    (small.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    small.copy_as_it_is()  # records the log start
    assert offsets_of(tier.scan("orders", partitions=[0]).to_table())[0] == (0, 7)
    with pytest.raises(OffsetOutOfRangeError, match="offset 6 is below the log start 7"):
        tier.scan("orders", partitions=[0], start=6)
