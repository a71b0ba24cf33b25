"""The kernels that decode records: compiled and reference must agree with each other and with ``log.record``."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.log.batches import batch, plain
from tests.log.encoded_record import encode_record
from tierd.kernels import Columns, RecordFault, compiled, decode_batches, decode_records, reference
from tierd.kernels.choice import WORTH_COMPILING_RECORDS, KernelChoice, compile_kernels_for
from tierd.kernels.columns import BatchColumns
from tierd.log.records.compression import Compression
from tierd.log.records.new_record import encode_field, encode_varint
from tierd.log.records.record import Header, RecordError, iter_raw_records
from tierd.log.records.record_batch import iter_batches

payloads = st.one_of(st.none(), st.binary(max_size=300))
header_rows = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4)
rows = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), payloads, payloads, header_rows),
    max_size=8,
)
Row = tuple[int, int, bytes | None, bytes | None, list[Header]]
BODY = b"\0" + encode_varint(0) + encode_varint(0) + encode_field(b"k") + encode_field(b"v")


def encoded(found: list[Row]) -> bytes:
    return b"".join(encode_record(ts, offset, key, value, headers) for ts, offset, key, value, headers in found)


def contents(columns: Columns) -> tuple[list[list[int]], int, RecordFault]:
    arrays = [
        columns.offset,
        columns.timestamp_ms,
        columns.key_start,
        columns.key_size,
        columns.value_start,
        columns.value_size,
        columns.headers_start,
        columns.header_count,
    ]
    assert {len(array) for array in arrays} == {len(columns)}
    assert [array.itemsize for array in arrays] == [8, 8, 4, 4, 4, 4, 4, 4]
    return [array.tolist() for array in arrays], columns.end, columns.fault


def both(data: bytes, count: int, *, start: int = 0, must_fill: bool = True) -> Columns:
    """Return the columns of both kernels, which agree, for several base offsets."""
    for base, base_ms, append_ms in ((5, 7, None), (2**63 - 1, -(2**63), None), (0, 0, -1), (0, 0, 99)):
        results = [
            kernels.decode_records(
                data,
                count,
                base_offset=base,
                base_timestamp_ms=base_ms,
                append_time_ms=append_ms,
                start=start,
                must_fill=must_fill,
            )
            for kernels in (reference, compiled)
        ]
        assert contents(results[0]) == contents(results[1])
    expected = reference.decode_records(data, count, start=start, must_fill=must_fill)
    assert contents(compiled.decode_records(data, count, start=start, must_fill=must_fill)) == contents(expected)
    return expected


def both_batches(data: bytes, *, start: int = 0, at_most: int = 1 << 16) -> BatchColumns:
    expected = reference.decode_batches(data, start=start, at_most=at_most)
    found = compiled.decode_batches(data, start=start, at_most=at_most)
    assert contents(found.records) == contents(expected.records)
    assert found.position.tolist() == expected.position.tolist()
    assert found.first_record.tolist() == expected.first_record.tolist()
    return expected


@given(rows, rows)
def test_decoded_columns_hold_the_positions_of_encoded_fields(before: list[Row], after: list[Row]) -> None:
    data, start = encoded(before + after), len(encoded(before))
    columns = both(data, len(after), start=start)
    assert (columns.fault, columns.end) == (RecordFault.NONE, len(data))
    for index, (timestamp, offset, key, value, headers) in enumerate(after):
        assert (columns.timestamp_ms[index], columns.offset[index]) == (timestamp, offset)
        for expected, start_of, size_of in (
            (key, columns.key_start, columns.key_size),
            (value, columns.value_start, columns.value_size),
        ):
            size = size_of[index]
            assert (None if size < 0 else data[start_of[index] : start_of[index] + size]) == expected
        assert columns.header_count[index] == len(headers)
    assert len(both(data, len(before), must_fill=False)) == len(before)


def check_against_the_record_decoder(data: bytes, count: int) -> None:
    columns = both(data, count)
    decoded = 0
    try:
        for raw in iter_raw_records(data, count):
            assert (raw.timestamp_delta_ms, raw.offset_delta) == (
                columns.timestamp_ms[decoded],
                columns.offset[decoded],
            )
            assert len(raw.headers) == columns.header_count[decoded]
            decoded += 1
    except RecordError:
        assert columns.fault
    else:
        assert not columns.fault
    assert len(columns) == decoded


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(-2, 20))
def test_kernels_and_record_decoder_agree_on_any_bytes(data: bytes, count: int) -> None:
    check_against_the_record_decoder(data, count)


@settings(max_examples=300)
@given(rows.filter(len), st.data())
def test_kernels_and_record_decoder_agree_on_damaged_records(found: list[Row], data: st.DataObject) -> None:
    damaged = bytearray(encoded(found))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    check_against_the_record_decoder(bytes(damaged[:cut]), len(found))
    check_against_the_record_decoder(bytes(damaged), data.draw(st.integers(0, len(found) + 1)))


def sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("data", "count", "fault"),
    [
        (b"", -1, RecordFault.NEGATIVE_COUNT),
        (b"", 1, RecordFault.BYTES_END),
        (sized(BODY + encode_varint(0)), 2**31 - 1, RecordFault.BYTES_END),
        (encode_varint(-1), 1, RecordFault.RECORD_SIZE),
        (encode_varint(2**31 - 1), 1, RecordFault.RECORD_SIZE),
        (b"\xff" * 5 + b"\x01" + BODY, 1, RecordFault.NUMBER_TOO_LONG),
        (sized(b"\0" + b"\x80" * 10 + b"\0" + BODY), 1, RecordFault.NUMBER_TOO_LONG),
        (sized(b"\0\0\0" + encode_varint(-2) + encode_field(b"v") + encode_varint(0)), 1, RecordFault.FIELD_SIZE),
        (
            sized(b"\0\0\0" + encode_varint(2**31 - 1) + encode_field(b"v") + encode_varint(0)),
            1,
            RecordFault.FIELD_SIZE,
        ),
        (sized(BODY + encode_varint(-1)), 1, RecordFault.HEADER_COUNT),
        (sized(BODY + encode_varint(2**31 - 1)), 1, RecordFault.HEADER_COUNT),
        (sized(BODY + encode_varint(1) + encode_field(None) + encode_field(None)), 1, RecordFault.HEADER_NAME),
        (sized(BODY + encode_varint(0) + b"\0"), 1, RecordFault.NOT_FILLED),
        (sized(BODY + encode_varint(0)) + b"\0", 1, RecordFault.BYTES_LEFT),
    ],
)
def test_each_damage_of_records_is_returned_as_its_fault(data: bytes, count: int, fault: RecordFault) -> None:
    assert both(data, count).fault is fault
    assert fault.problem


def test_claimed_count_of_two_billion_records_allocates_no_memory() -> None:
    data = encode_record(0, 0, b"k", b"v") * 3
    assert len(both(data, 2**31 - 1)) == 3


def test_bytes_and_memoryviews_are_decoded() -> None:
    data = encode_record(5, 7, b"k", b"v")
    for buffer in (data, memoryview(data), memoryview(bytearray(data))):
        for kernels in (reference, compiled):
            assert kernels.decode_records(buffer, 1).offset[0] == 7
        assert decode_records(buffer, 1).timestamp_ms[0] == 5


written_batches = st.lists(
    st.builds(
        batch,
        st.integers(0, 2**62),
        st.lists(st.tuples(st.integers(-1, 2**62), payloads, payloads), max_size=5),
        codec=st.sampled_from([Compression.NONE] * 6 + [Compression.GZIP]),
        log_append_ms=st.one_of(st.none(), st.integers(-1, 2**62)),
    ),
    max_size=6,
)


@given(written_batches, st.integers(0, 12))
def test_batches_are_decoded_up_to_a_compressed_one_or_the_limit(written: list[bytes], at_most: int) -> None:
    data = b"".join(written)
    found = both_batches(data, at_most=at_most)
    expected, records = [], 0
    for number, one in enumerate(iter_batches(data, name="x")):
        if number == at_most or one.attributes & 7 or records + one.record_count > at_most:
            break
        expected += list(one.records())
        records += one.record_count
    assert found.records.offset.tolist() == [record.offset for record in expected]
    assert found.records.timestamp_ms.tolist() == [record.timestamp_ms for record in expected]
    left = data[found.records.end :]
    assert both_batches(data, start=found.records.end, at_most=0).records.end == found.records.end
    assert sum(map(len, written[: len(found.position)])) == len(data) - len(left)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=300), written_batches.map(b"".join)), st.data())
def test_reference_and_compiled_kernel_decode_any_batches_alike(data: bytes, choice: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(choice.draw(st.integers(0, 3)) if damaged else 0):
        damaged[choice.draw(st.integers(0, len(damaged) - 1))] = choice.draw(st.integers(0, 255))
    both_batches(
        bytes(damaged), start=choice.draw(st.integers(0, len(damaged))), at_most=choice.draw(st.integers(0, 9))
    )


def test_batches_are_decoded_by_the_chosen_kernel() -> None:
    data = plain(3, 4) + plain(7, 2)
    assert decode_batches(data).records.offset.tolist() == [3, 4, 5, 6, 7, 8]
    assert decode_batches(data).first_record.tolist() == [0, 4]


@pytest.fixture
def slow_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Module ``slow_kernels`` that is loaded once the event is set."""
    may_end = threading.Event()
    monkeypatch.setattr(sys, "may_end", may_end, raising=False)
    slow = "import sys\nsys.may_end.wait(60)\nfrom tierd.kernels.compiled import *\n"
    (tmp_path / "slow_kernels.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)
    yield may_end
    may_end.set()
    sys.modules.pop("slow_kernels", None)


def test_compiled_kernel_is_chosen_from_a_total_number_of_records_on() -> None:
    choice = KernelChoice()
    assert choice.for_records(WORTH_COMPILING_RECORDS - 1).decode_records is reference.decode_records
    choice.for_records(1)
    choice.compile()  # waits for the load that has begun
    assert choice.for_records(1).decode_records is compiled.decode_records


async def test_bulk_work_begins_with_the_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the thread that loads, the reference made a restore of ten million keys half as fast."""
    fresh = KernelChoice()
    monkeypatch.setattr("tierd.kernels.choice.CHOICE", fresh)
    await compile_kernels_for(WORTH_COMPILING_RECORDS - 1)
    assert fresh.for_records(0).decode_records is reference.decode_records
    await compile_kernels_for(1_000_000_000)
    assert fresh.for_records(0).decode_records is compiled.decode_records


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_bulk_work_waits_for_a_long_load_within_bounds(
    slow_kernels: threading.Event, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    monkeypatch.setattr("tierd.kernels.choice._REFERENCE_S_PER_RECORD", 1.0 if is_cancelled else 0.0)
    choice = KernelChoice(compiled_module="slow_kernels")
    waiting = asyncio.create_task(choice.compile_for(WORTH_COMPILING_RECORDS))
    if is_cancelled:
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() == is_cancelled
    assert choice.for_records(0).decode_records is reference.decode_records
    slow_kernels.set()
    choice.compile()
    assert choice.for_records(0).decode_records is compiled.decode_records


def test_load_that_ends_after_its_event_loop_disturbs_nothing(
    slow_kernels: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierd.kernels.choice._REFERENCE_S_PER_RECORD", 0.0)
    choice = KernelChoice(compiled_module="slow_kernels")
    asyncio.run(choice.compile_for(WORTH_COMPILING_RECORDS))
    threads = [thread for thread in threading.enumerate() if thread.name == "kernels"]
    slow_kernels.set()
    for thread in threads:
        thread.join(60)
    assert choice.for_records(0).decode_records is compiled.decode_records


def test_reference_goes_on_while_the_compiled_kernel_is_loaded(slow_kernels: threading.Event) -> None:
    choice = KernelChoice(compiled_module="slow_kernels")
    for _ in range(3):
        assert choice.for_records(WORTH_COMPILING_RECORDS).decode_records is reference.decode_records
    slow_kernels.set()
    choice.compile()
    assert choice.for_records(1).decode_records is compiled.decode_records


@pytest.mark.parametrize("end", ["from tierd.kernels.compiled import *", "raise ImportError"])
def test_threads_take_turns_more_often_during_a_load_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    intervals_s: list[float] = []
    monkeypatch.setattr(sys, "intervals_s", intervals_s, raising=False)
    (tmp_path / f"kernels_{len(end)}.py").write_text(
        f"import sys\nsys.intervals_s.append(sys.getswitchinterval())\n{end}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before_s = sys.getswitchinterval()
    KernelChoice(compiled_module=f"kernels_{len(end)}").compile()
    assert intervals_s[0] < before_s
    assert sys.getswitchinterval() == before_s


def test_reference_is_used_and_logged_once_where_kernels_cannot_be_compiled() -> None:
    choice = KernelChoice(compiled_module="tierd.kernels.absent")
    with capture_logs() as lines:
        for _ in range(3):
            assert choice.for_records(WORTH_COMPILING_RECORDS).decode_records is reference.decode_records
            choice.compile()
    assert [line["event"] for line in lines] == ["kernels_not_compiled"]


ENDED_EARLY = """
from tierd.kernels import decode_records
from tierd.kernels.choice import CHOICE, WORTH_COMPILING_RECORDS
CHOICE.for_records(WORTH_COMPILING_RECORDS)
assert len(decode_records(b"", 0)) == 0
"""


def test_a_process_ends_in_order_while_it_loads_the_compiled_kernel() -> None:
    found = subprocess.run([sys.executable, "-c", ENDED_EARLY], capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")


FORBIDDEN = """
import ctypes
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE: as systemd's MemoryDenyWriteExecute=
from tierd.kernels import compile_kernels, decode_records
compile_kernels()
assert len(decode_records(b"", 0)) == 0
"""


def test_records_are_decoded_in_a_process_without_executable_memory() -> None:
    found = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0 or "assert ctypes" in found.stderr, found.stderr  # a host without that call
    if not found.returncode:
        assert "kernels_not_compiled" in found.stdout + found.stderr


UNCACHED = """
import numba.core.caching
numba.core.caching.CacheImpl._locator_classes = []  # as where neither the installation nor a home can be written
from tierd.kernels import compiled
assert len(compiled.decode_records(bytes.fromhex("10000000026b027600"), 1)) == 1
"""


def test_kernels_are_compiled_in_each_process_where_no_cache_can_be_written() -> None:
    subprocess.run([sys.executable, "-c", UNCACHED], check=True, timeout=60)


def test_imports_of_the_daemon_load_neither_numba_nor_numpy() -> None:
    program = """
import sys, tierd.app
for name in tierd.app.__all__:
    getattr(tierd.app, name)
import tierd.app.daemon.daemon
sys.exit('numba' in sys.modules or 'numpy' in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
