"""The append of a stream of lines to a log, batch by batch. Memory holds one batch, for any length of the stream."""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.cli.output.record_lines import InputRecord, ParseLine
from tierd.clock import SystemClock
from tierd.errors import RecordLineError
from tierd.log import BatchBuilder, Compression, UnifiedLog

_CLOCK = SystemClock()
_MAX_LINE_BYTES = 512 << 20  # base64 of the largest record that a batch can hold after compression


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendSettings:
    """Settings by which lines become batches.

    Attributes:
        leader_epoch: epoch of the leader that appends; with ``keep_offsets`` the epoch of lines that name none.
        batch_records: most records of one batch.
        keep_offsets: take the offset of each record from its line, as a follower takes it from its leader.
    """

    parse: ParseLine
    compression: Compression
    leader_epoch: int
    batch_records: int
    keep_offsets: bool = False


@dataclass(slots=True)
class Appended:
    """Counts of an append; every record that is counted is in the log.

    Attributes:
        first_offset: None until a record was appended.
        last_offset: inclusive.
        was_interrupted: a signal ended the append; the input may have had more lines.
    """

    records: int = 0
    batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    was_interrupted: bool = False


class LineAppender:
    """Appender of lines. A signal may interrupt ``run`` only while it waits for input."""

    def __init__(self, log: UnifiedLog, settings: AppendSettings, *, progress: Callable[[str], None]) -> None:
        self.appended = Appended()
        self._log = log
        self._settings = settings
        self._progress = progress
        self._builder: BatchBuilder | None = None
        self._builder_epoch = settings.leader_epoch
        self._line = 0

    def run(self, read_line: Callable[[int], bytes]) -> None:
        """Append everything that ``read_line`` returns, up to its end or its failure.

        Raises:
            RecordLineError: a line is no record; all lines before it are in the log.
            KeyboardInterrupt: ``read_line`` was interrupted; every line that it returned is in the log.
            LogError: the log refused a batch, or its disk failed; ``appended`` counts the batches before.
        """
        try:
            while line := read_line(_MAX_LINE_BYTES):
                self._line += 1
                self._take(line)
        except (RecordLineError, KeyboardInterrupt):
            self._write()
            raise
        self._write()

    def _take(self, line: bytes) -> None:
        if len(line) >= _MAX_LINE_BYTES:
            raise RecordLineError(
                f"line {self._line}: longer than {_MAX_LINE_BYTES} bytes", remedy="cut the line into several records"
            )
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if not text:
            return
        given = self._settings.parse(text, self._line, _CLOCK.now_ms())
        if self._must_begin(given):
            self._write()
        if self._builder is None:
            self._begin(given)
        assert self._builder is not None
        try:
            self._builder.append(given.record, offset=given.offset if self._settings.keep_offsets else None)
        except ValueError as error:
            raise RecordLineError(f"line {self._line}: {error}") from error

    def _must_begin(self, given: InputRecord) -> bool:
        builder = self._builder
        if builder is None:
            return False
        is_full = builder.record_count >= self._settings.batch_records or not builder.has_room_for(given.record)
        return is_full or (self._settings.keep_offsets and self._epoch_of(given) != self._builder_epoch)

    def _epoch_of(self, given: InputRecord) -> int:
        return self._settings.leader_epoch if given.leader_epoch is None else given.leader_epoch

    def _begin(self, given: InputRecord) -> None:
        keep = self._settings.keep_offsets
        if keep and given.offset is None:
            raise RecordLineError(
                f"line {self._line}: no offset, which --keep-offsets needs",
                remedy="give every line an offset, or leave --keep-offsets out",
            )
        self._builder_epoch = self._epoch_of(given) if keep else -1
        self._builder = BatchBuilder(
            base_offset=(given.offset or 0) if keep else 0,
            compression=self._settings.compression,
            leader_epoch=self._builder_epoch,
            write_limit_bytes=self._log.config.max_message_bytes,
        )

    def _write(self) -> None:
        builder, self._builder = self._builder, None
        if builder is None or not builder.record_count:
            return
        batch, now_ms = builder.build(), _CLOCK.now_ms()
        if self._settings.keep_offsets:
            info = self._log.append_as_follower(batch, now_ms=now_ms)
        else:
            info = self._log.append_as_leader(batch, leader_epoch=self._settings.leader_epoch, now_ms=now_ms)
        done = self.appended
        done.records += builder.record_count
        done.batches += 1
        done.first_offset = info.first_offset if done.first_offset is None else done.first_offset
        done.last_offset = info.last_offset
        self._log.housekeep(now_ms)
        self._progress(f"{done.records} records, up to offset {done.last_offset}")
