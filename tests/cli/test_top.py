"""Rates of tierd top: from two answers of the daemon to what a terminal shows."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.answering_daemon import Request, answering_daemon
from tests.scenarios.command import TIERD, run_tierd
from tests.services.waiting import is_readable
from tierd.cli.commands.top import PartitionRate, Rates, rates_between, rendered_rates, totals_of
from tierd.serve import StatusAnswer

DEADLINE_S = 60.0
UP, HIDE_CURSOR, SHOW_CURSOR = b"\x1b[1A", b"\x1b[?25l", b"\x1b[?25h"


def partition(name: str = "orders-0", **changes: object) -> dict[str, object]:
    facts: dict[str, object] = {"partition": name, "role": "leader", "leader_epoch": 1, "state": "idle", "reason": None}
    facts |= {"last_error": None, "copied_through": 9, "high_watermark": 20}
    return facts | {"lag_segments": 1, "lag_bytes": 2048, "lag_seconds": 0.0} | changes


def answer(now_ms: int = 0, *partitions: dict[str, object], **changes: object) -> StatusAnswer:
    facts: dict[str, Any] = {"version": "1", "pid": 7, "started_ms": 5, "now_ms": now_ms, "not_ready": []}
    return StatusAnswer.model_validate(facts | {"partitions": partitions} | changes)


def lines_of(status: StatusAnswer, rates: Rates | None) -> list[str]:
    return [line for part in rendered_rates(status, rates) for line in part.lines(120, styled=False)]


def test_rate_is_the_difference_of_two_totals_over_the_time_between_them() -> None:
    before = answer(1000, totals={"copied_bytes": 100, "deletions": 3})
    after = answer(3000, totals={"copied_bytes": 4100, "deletions": 3})

    rates = rates_between(before, after)

    assert rates is not None
    assert rates.seconds == 2
    assert rates.work["copied_bytes"] == 2000
    assert rates.work["deletions"] == 0


def test_bytes_of_the_read_endpoint_are_those_of_all_listeners() -> None:
    def endpoint(sent: int) -> dict[str, object]:
        return {"listeners": {"a": {"sent_bytes": sent, "received_bytes": 1}, "b": {"sent_bytes": 5}}}

    before, after = answer(0, endpoint=endpoint(10)), answer(1000, endpoint=endpoint(40))

    rates = rates_between(before, after)

    assert totals_of(after)["endpoint_sent_bytes"] == 45
    assert rates is not None
    assert rates.work["endpoint_sent_bytes"] == 30
    assert rates.work["endpoint_received_bytes"] == 0


def test_partitions_that_moved_are_listed_busiest_first() -> None:
    before = answer(0, partition("a-0"), partition("b-0"), partition("c-0"), partition("d-0", high_watermark=None))
    after = answer(
        2000,
        *(partition("a-0", copied_through=13), partition("b-0", high_watermark=120), partition("c-0")),
        *(partition("d-0", copied_through=1), partition("new-0", copied_through=99)),
    )

    rates = rates_between(before, after)

    assert rates is not None
    assert rates.partitions == (
        PartitionRate("b-0", copied=0, written=50, lag_bytes=2048),
        PartitionRate("a-0", copied=2, written=0, lag_bytes=2048),
    )


@pytest.mark.parametrize(
    "after",
    [answer(3000, pid=8), answer(3000, started_ms=6), answer(1000), answer(900)],
    ids=["another process", "started again", "no time", "clock stepped back"],
)
def test_answers_of_which_no_rate_can_be_told_have_none(after: StatusAnswer) -> None:
    assert rates_between(answer(1000), after) is None
    assert lines_of(after, None)[-1] == "the daemon was started again: no rates yet"


def test_total_that_fell_has_no_rate() -> None:
    rates = rates_between(answer(0, totals={"fetches": 9}), answer(1000, totals={"fetches": 2}))

    assert rates is not None
    assert rates.work["fetches"] == 0


def test_daemon_of_an_earlier_version_has_no_totals_and_rates_of_0() -> None:
    rates = rates_between(answer(0), answer(1000))

    assert rates is not None
    assert set(rates.work.values()) == {0}


def test_rates_are_shown_with_their_units_and_the_totals() -> None:
    before = answer(0, partition())
    after = answer(1000, partition(copied_through=14), totals={"copied_bytes": 3 * 1024 * 1024, "fetches": 4})

    lines = lines_of(after, rates_between(before, after))

    assert lines[:2] == ["tierd 1, process 7, ready", "to copy: 1 segments, 2.0 KiB; rates over 1.0 s"]
    shown = [line.split() for line in lines]
    assert ["copied", "to", "the", "tier", "3.0", "MiB", "3.0", "MiB"] in shown
    assert ["reads", "from", "the", "tier", "4.0", "4"] in shown
    assert lines[-1].split() == ["orders-0", "5.0", "0.0", "2.0", "KiB"]


def test_causes_of_not_being_ready_are_shown_above_the_rates() -> None:
    status = answer(1000, not_ready=["stopping: SIGTERM"])

    assert lines_of(status, rates_between(answer(0), status))[1] == "not ready: stopping: SIGTERM"


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """Answer as a daemon that copies 1000 bytes a second."""
    numbers = count()

    def moving(_: Request) -> object:
        second = next(numbers)
        moved = answer(1000 * second, partition(copied_through=second), totals={"copied_bytes": 1000 * second})
        return moved.to_json()

    with answering_daemon(tmp_path, moving) as path:
        yield path


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (
            ["top", "--interval", "0.1", "--json"],
            '{"seconds": 1.0, "work": {"copied_segments": 0.0, "copied_bytes": 1000.0',
        ),
        (["top", "--interval", "0.1"], "tierd 1, process 7, ready"),
        (["status", "--watch"], "tierd 1, process 7, ready"),
    ],
    ids=["json", "plain lines", "status"],
)
def test_lines_come_at_once_without_a_terminal_and_ctrl_c_ends_them_cleanly(
    socket: Path, words: list[str], begins: str
) -> None:
    with subprocess.Popen(
        [sys.executable, str(TIERD), *words, "--socket", str(socket)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=DEADLINE_S)

    assert first.startswith(begins)
    assert (process.returncode, errors) == (0, "")
    assert "\x1b" not in first + rest


def test_rates_of_one_interval_are_one_line_of_json_and_the_command_ends(socket: Path) -> None:
    ended = run_tierd("top", "--once", "--interval", "0.1", "--json", "--socket", str(socket))

    (rates,) = ended.json_lines()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert rates["work"]["copied_bytes"] == 1000


@pytest.mark.parametrize("words", [["top", "--interval", "0.1"], ["status", "--watch"]], ids=" ".join)
def test_terminal_is_redrawn_in_place_and_has_its_cursor_back_after_ctrl_c(socket: Path, words: list[str]) -> None:
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(TIERD), *words, "--socket", str(socket)],
        stdin=side,
        stdout=side,
        stderr=side,
        env=os.environ | {"TERM": "xterm-256color"},
    ) as process:
        os.close(side)
        shown = _read_until(terminal, UP)
        process.send_signal(signal.SIGINT)
        shown += _read_until(terminal, SHOW_CURSOR)
        process.wait(DEADLINE_S)
    os.close(terminal)

    assert process.returncode == 0
    assert HIDE_CURSOR in shown
    assert b"Traceback" not in shown


def _read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        assert is_readable(terminal, deadline_s=DEADLINE_S), f"{wanted!r} is missing after {shown!r}"
        shown += os.read(terminal, 65536)
    return shown
