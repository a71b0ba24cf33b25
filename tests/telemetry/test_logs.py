import errno
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.fakes.log_capture import restored_logging
from tierd.telemetry import configure_logging
from tierd.telemetry.logs import mask_secrets


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    with restored_logging():
        yield


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_event_is_one_json_object_with_time_level_and_event_first() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)

    structlog.get_logger().info("segment_copied", partition="orders-3", size_bytes=7)

    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "partition", "size_bytes"]
    assert line["event"] == "segment_copied"
    assert str(line["timestamp"]).endswith("Z")


def test_value_without_a_json_form_is_written_as_text() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)

    structlog.get_logger().info("seen", path=Path("/a"), error=ValueError("no"))

    (line,) = lines(stream)
    assert (line["path"], line["error"]) == ("/a", "no")


def test_events_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="warning", stream=stream)

    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")

    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_second_configuration_applies_to_existing_loggers() -> None:
    log = structlog.get_logger()
    first, second = io.StringIO(), io.StringIO()

    configure_logging(format="json", level="error", stream=first)
    log.info("lost")
    configure_logging(format="json", level="debug", stream=second)
    log.debug("kept")

    assert first.getvalue() == ""
    assert [line["event"] for line in lines(second)] == ["kept"]


def test_events_of_libraries_are_written_from_warning_on() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)

    logging.getLogger("botocore").info("chatter")
    logging.getLogger("botocore").warning("slow: %s", "secret=hush")

    (line,) = lines(stream)
    assert line["event"] == "slow: secret=********"
    assert line["logger"] == "botocore"


def test_an_exception_is_one_line_of_json_and_its_secrets_are_masked() -> None:
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)

    try:
        int("password=hush")
    except ValueError:
        structlog.get_logger().exception("task_failed")

    (line,) = lines(stream)
    assert "ValueError" in str(line["exception"])
    assert "hush" not in stream.getvalue()


def test_console_format_is_text_without_colours_in_a_file() -> None:
    stream = io.StringIO()
    configure_logging(format="console", level="info", stream=stream)

    structlog.get_logger().info("segment_copied", partition="orders-3")

    assert "segment_copied" in stream.getvalue()
    assert "partition=orders-3" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


@pytest.mark.parametrize(
    "event",
    [
        {"secret_access_key": "hush"},
        {"AWS_SECRET_ACCESS_KEY": "hush"},
        {"settings": {"s3": {"session_token": "hush"}}},
        {"headers": [{"Authorization": "AWS4 hush"}]},
        {"event": "GET https://user:hush@host/"},
        {"event": "https://h/k?X-Amz-Signature=hush&x=1"},
        {"event": "{'secret_access_key': 'hush'}"},
        {"event": "password: hush"},
    ],
)
def test_secrets_are_masked_in_any_place_of_an_event(event: dict[str, object]) -> None:
    assert "hush" not in repr(mask_secrets(None, "info", event))


def test_values_that_are_no_secrets_are_not_masked() -> None:
    event = {
        "event": "segment_copied",
        "key": "prod/a.log",
        "url": "http://127.0.0.1:9405/",
        "access_key_set": True,
        "n": 3,
    }

    assert mask_secrets(None, "info", dict(event)) == event


class FailingStream(io.StringIO):
    """Stream on a full disk, or to a reader that has closed."""

    failure: OSError | None = None

    def write(self, text: str) -> int:
        if self.failure is not None:
            raise self.failure
        return super().write(text)

    def flush(self) -> None:
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError()])
def test_failed_write_of_a_log_line_raises_no_error_and_later_lines_are_written(failure: OSError) -> None:
    stream = FailingStream()
    configure_logging(format="json", level="info", stream=stream)
    stream.failure = failure
    structlog.get_logger().info("lost")
    logging.getLogger("library").warning("lost, too")
    stream.failure = None
    structlog.get_logger().info("heard")

    assert [line["event"] for line in lines(stream)] == ["heard"]
