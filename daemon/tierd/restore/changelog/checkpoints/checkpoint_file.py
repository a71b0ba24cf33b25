"""CheckpointFile: the offsets of state stores on disk, in the format of Kafka Streams (changelog-restore 2.5).

::

    0                             version
    2                             number of entries
    orders-changelog 0 1500       topic, partition, offset; or -4: the entry is known, the offset is not
    orders-changelog 1 1620

UTF-8, every line ends with a line feed. One space between fields when written; any white space when read. The format
does not say what an offset means: ``OffsetSemantics`` does.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from tierd.log import Disk, OsDisk, encode_offset_checkpoint, read_file, replace_file, unlink_if_there
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import CheckpointFault, CheckpointFileError, IllegalRestoreError

CHECKPOINT_FILE_NAME: Final = ".checkpoint"
OFFSET_UNKNOWN: Final = -4
"""Offset of an entry whose store has no offset yet (Kafka: OFFSET_UNKNOWN)."""

_WHITE = re.compile(r"\s+", re.ASCII)
_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)

log = structlog.get_logger()


class OffsetSemantics(StrEnum):
    """Meaning of an offset in a checkpoint file. A file of one meaning, read with the other, loses a record."""

    LAST_APPLIED = "last_applied"  # Kafka Streams from 2.6 on, directories of tasks
    NEXT = "next"  # Kafka Streams up to 2.5, and the global store of every version

    def last_applied(self, offset: int) -> int | None:
        """Return the last applied offset that an entry stands for; None where nothing is known to be applied."""
        last = offset - 1 if self is OffsetSemantics.NEXT else offset
        return last if last >= 0 else None

    def entry(self, last_applied: int | None) -> int:
        """Return the entry for a last applied offset."""
        if last_applied is None:
            return OFFSET_UNKNOWN
        return last_applied + 1 if self is OffsetSemantics.NEXT else last_applied

    def first_to_fetch(self, offset: int) -> int | None:
        """Return the first offset to read for an entry; None for the beginning of the changelog."""
        last = self.last_applied(offset)
        return None if last is None else last + 1


class CheckpointFile:
    """One checkpoint file. Calls block; one at a time."""

    def __init__(
        self, path: Path, *, semantics: OffsetSemantics = OffsetSemantics.LAST_APPLIED, disk: Disk | None = None
    ) -> None:
        self.path = path
        self.semantics = semantics
        self._disk = disk or OsDisk()

    def read(self) -> dict[TopicPartition, int]:
        """Return the entries as the file has them; empty if the file is missing.

        An entry with a negative offset other than ``OFFSET_UNKNOWN`` is left out, with a warning in the log.

        Raises:
            CheckpointFileError: the content breaks the format, or the file cannot be read.
        """
        try:
            data = read_file(self._disk, self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise disk_fault(self.path, error) from error
        return self._parse(data)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the content, durably; without offsets, delete the file.

        Raises:
            IllegalRestoreError: an offset is negative and not ``OFFSET_UNKNOWN``, or a topic's name has white space;
                the old content is as it was.
            CheckpointFileError: the disk is full or failing, or the directory is missing; the old content is as it was.
        """
        if not offsets:
            self.delete()
            return
        for partition, offset in offsets.items():
            if offset < 0 and offset != OFFSET_UNKNOWN:
                raise IllegalRestoreError(f"{self.path}: offset {offset} of {partition} cannot be written")
            if not partition.topic or _WHITE.search(partition.topic):
                raise IllegalRestoreError(f"{self.path}: {partition.topic!r} is not the name of a topic")
        try:
            replace_file(self._disk, self.path, encode_offset_checkpoint(offsets))
        except OSError as error:
            raise disk_fault(self.path, error) from error

    def delete(self) -> None:
        """Delete the file, durably; a missing one is no error.

        Raises:
            CheckpointFileError: the file cannot be removed.
        """
        try:
            if unlink_if_there(self._disk, self.path):
                self._disk.sync_directory(self.path.parent)
        except OSError as error:
            raise disk_fault(self.path, error) from error

    def _parse(self, data: bytes) -> dict[TopicPartition, int]:
        try:
            lines = _LINE_END.split(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self._fault(CheckpointFault.FORMAT, "not UTF-8 text") from error
        if lines[-1] == "":
            lines.pop()
        if not lines:
            raise self._fault(CheckpointFault.ENDS_EARLY, "the file is empty")
        version = self._number(lines[0], 32)
        if version != 0:
            raise self._fault(CheckpointFault.VERSION, f"version {version} is not known, only 0")
        if len(lines) == 1:
            raise self._fault(CheckpointFault.ENDS_EARLY, "the file ends before the number of entries")
        expected = self._number(lines[1], 32)
        offsets: dict[TopicPartition, int] = {}
        for number, line in enumerate(lines[2:], start=3):
            fields = _WHITE.split(line.rstrip())  # leading white space makes an empty first field, as in Java
            if len(fields) != 3:
                raise self._fault(CheckpointFault.FORMAT, f"line {number} is not <topic> <partition> <offset>")
            partition = TopicPartition(fields[0], self._number(fields[1], 32))
            offset = self._number(fields[2], 64)
            if offset < 0 and offset != OFFSET_UNKNOWN:
                log.warning("checkpoint_entry_skipped", file=str(self.path), partition=str(partition), offset=offset)
                expected -= 1
            else:
                offsets[partition] = offset
        if len(offsets) != expected:
            raise self._fault(CheckpointFault.FORMAT, f"{expected} entries are announced, {len(offsets)} are there")
        return offsets

    def _number(self, text: str, bits: int) -> int:
        value = int(text) if _NUMBER.fullmatch(text) else None
        if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self._fault(CheckpointFault.NUMBER, f"{text[:40]!r} is not a {bits}-bit number")
        return value

    def _fault(self, fault: CheckpointFault, problem: str) -> CheckpointFileError:
        return CheckpointFileError(self.path, fault, problem)


def disk_fault(path: Path, error: OSError) -> CheckpointFileError:
    """Return the error for a file that cannot be read or written."""
    return CheckpointFileError(
        path, CheckpointFault.DISK, error.strerror or str(error), remedy="make room or mend the disk"
    )
