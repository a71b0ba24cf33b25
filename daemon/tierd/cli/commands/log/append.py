"""``tierd log append``: append records from standard input to a partition that no process uses."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated
from uuid import UUID

import typer

from tierd.cli.appending import Appended, AppendSettings, LineAppender
from tierd.cli.failures import ExitCode
from tierd.cli.log_settings import SetOption, parse_settings
from tierd.cli.options import JsonOption, NewPartitionDirectoryArgument
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.output.progress_line import progress_line
from tierd.cli.output.record_lines import MAX_INT, parse_json_line, parse_text_line
from tierd.cli.session import log_to_stderr
from tierd.cli.writable_partition import writable_partition
from tierd.clock import SystemClock
from tierd.errors import LogConfigError, TierError
from tierd.log import Compression, UnifiedLog
from tierd.model import TopicPartition, random_id, uuid_from_text, uuid_to_text


def append(
    directory: NewPartitionDirectoryArgument,
    *,
    text: Annotated[
        bool, typer.Option("--text", help="Read lines of key, tab and value, or of a value alone.")
    ] = False,
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    leader_epoch: Annotated[
        int | None,
        typer.Option(
            "--leader-epoch",
            min=0,
            max=MAX_INT,
            metavar="N",
            help="Leader epoch of the batches; default: the newest epoch of the log.",
        ),
    ] = None,
    batch_records: Annotated[
        int, typer.Option("--batch-records", min=1, metavar="N", help="Largest number of records in a batch.")
    ] = 500,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Take offsets and leader epochs from the lines, as a follower does.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the directory if it does not exist.")] = False,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="With --create: the topic id, 22 characters; default: a new id."),
    ] = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Append records from standard input, as a leader does; each line is a record in the form of tierd cat --json.

    The log dir is locked during the command, and left as after a clean stop. When the input ends, a line is wrong, or
    Ctrl-C is pressed, the appended records are durable, and their count is printed. The log counts as its partition's
    only replica: its high watermark is the log end afterwards.

    Examples:
        tierd cat orders-0 --json | tierd log append /srv/copy/orders-0 --create --compression zstd

        seq 1000 | tierd log append /srv/test/numbers-0 --text --create --set segment.bytes=65536
    """
    log_to_stderr()
    topic = TopicPartition.parse(directory.name).topic
    config, codec = parse_settings(settings).of(topic), _codec(compression)
    new_id = (_topic_id(topic_id) if topic_id else random_id()) if create else None
    with (
        Interruption.installed() as interruption,
        progress_line("appending") as report_progress,
        writable_partition(directory, config=config, now_ms=SystemClock().now_ms(), create_with=new_id) as log,
    ):
        line_settings = AppendSettings(
            parse=parse_text_line if text else parse_json_line,
            compression=codec,
            leader_epoch=_epoch(log, leader_epoch),
            batch_records=batch_records,
            keep_offsets=keep_offsets,
        )
        appender = LineAppender(log, line_settings, progress=report_progress)
        failure = _run(appender, interruption)
        log.update_high_watermark(log.log_end_offset)
    _print(directory, log, appender.appended, as_json=json)
    if failure is not None:
        raise failure
    if appender.appended.was_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _run(appender: LineAppender, interruption: "Interruption") -> TierError | None:
    """Append until the input ends, a signal comes or a line is wrong; return the failure, for after the report."""

    def read_line(limit_bytes: int) -> bytes:
        with interruption.allowed():
            return sys.stdin.buffer.readline(limit_bytes)

    try:
        appender.run(read_line)
    except KeyboardInterrupt:
        appender.appended.was_interrupted = True
    except TierError as error:
        return error
    return None


def _print(directory: Path, log: UnifiedLog, appended: Appended, *, as_json: bool) -> None:
    if as_json:
        answer = {
            "directory": str(directory),
            "records": appended.records,
            "batches": appended.batches,
            "first_offset": appended.first_offset,
            "last_offset": appended.last_offset,
            "log_end_offset": log.log_end_offset,
            "topic_id": None if log.topic_id is None else uuid_to_text(log.topic_id),
            "interrupted": appended.was_interrupted,
        }
        print_json(answer)
        return
    ended = "interrupted: " if appended.was_interrupted else ""
    place = f", offsets {appended.first_offset} to {appended.last_offset}" if appended.records else ""
    print_line(f"{ended}appended {appended.records} records in {appended.batches} batches{place}")


def _codec(name: str) -> Compression:
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise LogConfigError(f"--compression: {name!r} is no codec", remedy=f"one of {names}") from None


def _topic_id(text: str) -> UUID:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise LogConfigError(f"--topic-id: {error}", remedy="kafka-topics.sh --describe names the topic's") from error


def _epoch(log: UnifiedLog, wanted: int | None) -> int:
    latest = log.leader_epochs.latest
    newest = 0 if latest is None else latest.epoch
    if wanted is not None and wanted < newest:
        raise LogConfigError(
            f"--leader-epoch: {wanted} is older than the log's newest, {newest}",
            remedy=f"leave it out, or give {newest}",
        )
    return newest if wanted is None else wanted


class Interruption:
    """Handler of SIGINT and SIGTERM: raises ``KeyboardInterrupt`` inside ``allowed``, at once or at the next entry."""

    def __init__(self) -> None:
        self._is_allowed = False
        self._is_wanted = False

    @classmethod
    @contextlib.contextmanager
    def installed(cls) -> Iterator["Interruption"]:
        """Handle the two signals while the context lasts."""
        interruption = cls()
        before = {number: signal.signal(number, interruption._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield interruption
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow an interruption while the context lasts."""
        self._is_allowed = True
        try:
            if self._is_wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._is_wanted = True
        if self._is_allowed:
            self._is_allowed = False
            raise KeyboardInterrupt
