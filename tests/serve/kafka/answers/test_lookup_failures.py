"""Log lines about failed lookups."""

from structlog.testing import capture_logs

from tests.fakes.manual_clock import ManualClock
from tierd.errors import BackendUnavailableError
from tierd.rare_lines import MOST_LINES, REPEAT_AFTER_S
from tierd.serve.kafka.answers.partition_lookups import LookupFailures

_ERROR = BackendUnavailableError("down", remedy="start it")


def test_each_partition_and_kind_is_written_once_in_a_while() -> None:
    clock = ManualClock()
    failures = LookupFailures(clock)
    with capture_logs() as lines:
        for event, partition in (("a", "p-0"), ("a", "p-0"), ("a", "p-1"), ("b", "p-0")):
            failures.failed(event, partition, _ERROR)
        clock.advance(REPEAT_AFTER_S)
        failures.failed("a", "p-0", TimeoutError())
    assert [(each["event"], each["partition"], each["error"]) for each in lines] == [
        ("a", "p-0", "down"),
        ("a", "p-1", "down"),
        ("b", "p-0", "down"),
        ("a", "p-0", "too slow"),
    ]


def test_bug_is_left_to_the_one_who_chooses_its_code() -> None:
    with capture_logs() as lines:
        LookupFailures(ManualClock()).failed("a", "p-0", RuntimeError("a bug"))
    assert lines == []


def test_outage_of_thousands_of_partitions_fills_no_log_however_often_clients_ask() -> None:
    clock = ManualClock()
    failures = LookupFailures(clock)
    with capture_logs() as lines:
        for _ in range(3):
            for number in range(2 * MOST_LINES):
                failures.failed("a", str(number), _ERROR)
        assert len(lines) == MOST_LINES
        clock.advance(REPEAT_AFTER_S)
        failures.failed("a", "0", _ERROR)
    assert len(lines) == MOST_LINES + 1
