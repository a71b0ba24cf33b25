from pathlib import Path

import pytest

from tierd.cost.usage_ledger import HOUR_MS, STORED, Usage, UsageLedger, UsageLine

NOON_MS = 1_763_726_400_000  # 2025-11-21 12:00 UTC


def test_calls_of_one_hour_are_added_up_and_taken_once() -> None:
    usage = Usage(part_size_bytes=None)
    usage.add_call(NOON_MS + 5, "orders", "put", 100)
    usage.add_call(NOON_MS + 6, "orders", "put", 50)
    usage.add_call(NOON_MS + HOUR_MS, "orders", "get", 7)

    assert usage.take(NOON_MS + HOUR_MS, {"orders": 150}) == [
        UsageLine(NOON_MS, "orders", "put", 2, 150),
        UsageLine(NOON_MS + HOUR_MS, "orders", "get", 1, 7),
        UsageLine(NOON_MS + HOUR_MS, "orders", STORED, 0, 150),
    ]
    assert usage.take(NOON_MS + HOUR_MS, {}) == []


def test_lines_of_the_ledger_are_read_by_hour(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path / "usage")
    lines = [UsageLine(NOON_MS + n * HOUR_MS, "orders", "get", n, n) for n in range(4)]
    ledger.append(lines[:2])
    ledger.append(lines[2:])

    assert list(ledger.read(from_ms=NOON_MS + HOUR_MS, to_ms=NOON_MS + 3 * HOUR_MS)) == lines[1:3]
    assert list(UsageLedger(tmp_path / "nothing").read(from_ms=0, to_ms=NOON_MS)) == []


def test_torn_line_of_the_ledger_is_skipped(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path)
    ledger.append([UsageLine(NOON_MS, "orders", "get", 1, 1)])
    (file,) = tmp_path.iterdir()
    with file.open("a") as torn:
        torn.write('{"hour_ms":17637\n{"hour_ms":1,"topic":"a","operation":"no such","requests":1,"bytes":1}\n')
    with file.open("ab") as damaged:
        damaged.write(b"\xff\x00 a block of another file\n")
    ledger.append([UsageLine(NOON_MS, "orders", "get", 2, 2)])

    assert [line.requests for line in ledger.read(from_ms=NOON_MS, to_ms=NOON_MS + HOUR_MS)] == [1, 2]


def test_ledger_keeps_fourteen_months(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path)
    month_ms = 31 * 24 * HOUR_MS
    for month in range(20):
        ledger.append([UsageLine(NOON_MS + month * month_ms, "orders", "get", 1, 1)])

    assert len(list(tmp_path.iterdir())) == 14
    assert list(ledger.read(from_ms=NOON_MS, to_ms=NOON_MS + HOUR_MS)) == []


def test_append_to_a_ledger_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("no directory")

    with pytest.raises(OSError, match="usage"):
        UsageLedger(tmp_path / "usage").append([UsageLine(NOON_MS, "orders", "get", 1, 1)])
