"""RangeSink: the rows of one partition as files, cut into steps of bounded size. Every call blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tierd.exporting.export_directory import ExportDirectory, StagedFile, sync_file
from tierd.exporting.export_request import ExportFolder, ExportFormat, ExportLimits
from tierd.exporting.file_writers import FileWriter, open_writer
from tierd.model import IsolationLevel, Lineage, TopicIdPartition, uuid_to_text

_DAY_MS: Final = 86_400_000
_MOST_OPEN: Final = 16  # files of a step, for days in any order
_NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for null
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_DAY
_NO_DAY: Final = -1
_LONG_NAME: Final = 180  # a file name has 255 bytes, and a topic up to 249


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLayout:
    """Form of the files of an export."""

    format: ExportFormat
    limits: ExportLimits
    folders: tuple[ExportFolder, ...]
    isolation: IsolationLevel
    cluster_id: str

    def schema(self, whole: pa.Schema) -> pa.Schema:
        """Return the columns of the files: those that folders are named for are left out, as Hive does."""
        if self.format is ExportFormat.JSONL:
            return whole
        return pa.schema([field for field in whole if field.name not in self.folders])


@dataclass(slots=True)
class _OpenFile:
    writer: FileWriter
    part: Path
    label: str  # of its folder
    first_offset: int
    last_offset: int
    records: int


class RangeSink:
    """Writer of the records of one partition from ``from_offset`` on.

    Attributes:
        records: in finished steps.
        size_bytes: of the files of finished steps.
        files: number of files of finished steps.
        next_offset: behind the last finished step.
    """

    def __init__(
        self,
        directory: ExportDirectory,
        layout: ExportLayout,
        partition: TopicIdPartition,
        from_offset: int,
        *,
        lineage: Lineage | None = None,
    ) -> None:
        """Write nothing yet. ``lineage`` has the leader epochs of the records; None where they are not known."""
        self.records = 0
        self.size_bytes = 0
        self.files = 0
        self.next_offset = from_offset
        self._directory = directory
        self._layout = layout
        self._partition = partition
        self._lineage = lineage or Lineage()
        self._open: dict[str, _OpenFile] = {}
        self._rows = 0  # of the open files
        self._seen_offset = from_offset  # behind the last row

    def write(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Write rows, which follow the earlier ones, up to the end of the present step; return those behind it.

        Raises:
            StateDirError: the disk is full or failing, or has no room but what is left to a broker.
        """
        limit = self._layout.limits.rows
        part = rows if limit is None else rows.slice(0, limit - self._rows)
        self._directory.require_room(part.nbytes)
        last: int = part.column("offset")[part.num_rows - 1].as_py()
        with self._directory.on_disk():
            for label, labelled in self._by_label(part):
                self._write(label, labelled)
        self._seen_offset = last + 1
        self._rows += part.num_rows
        if self._is_full():
            self.finish(self._seen_offset)
        return rows.slice(part.num_rows) if part.num_rows < rows.num_rows else None

    def finish(self, next_offset: int | None = None) -> None:
        """Finish the present step: all records below ``next_offset``, or those that were written, are in files.

        Raises:
            StateDirError: the disk is full or failing.
        """
        until = self._seen_offset if next_offset is None else next_offset
        if until <= self.next_offset:
            return
        with self._directory.on_disk():
            files = [self._close(file, until) for file in self._open.values()]
        self._open.clear()
        self._rows = 0
        epoch = self._lineage.epoch_for(until - 1)
        self._directory.commit(self._partition, self.next_offset, until, files, epoch=epoch)
        self.next_offset = until
        self.records += sum(file.records for file in files)
        self.size_bytes += sum(file.size_bytes for file in files)
        self.files += len(files)

    def abandon(self) -> None:
        """Remove the files of the unfinished step; another run writes them again."""
        for file in self._open.values():
            file.writer.abandon()
            self._directory.abandon(file.part)
        self._open.clear()

    def _is_full(self) -> bool:
        limits = self._layout.limits
        if limits.rows is not None and self._rows >= limits.rows:
            return True
        size_bytes = sum(file.writer.size_bytes for file in self._open.values())
        return size_bytes >= limits.size_bytes or len(self._open) >= _MOST_OPEN

    def _by_label(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows by the day of their timestamps, if folders are named for days."""
        if ExportFolder.DATE not in self._layout.folders:
            yield "", rows
            return
        days = np.asarray(rows.column("timestamp").cast(pa.int64())) // _DAY_MS
        days[(days < 0) | (days > _LAST_DAY)] = _NO_DAY  # records may carry any 64-bit number
        for day in np.unique(days):
            yield _date(int(day)), rows.filter(pa.array(days == day))

    def _write(self, label: str, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        first, last = offsets[0].as_py(), offsets[rows.num_rows - 1].as_py()
        file = self._open.get(label)
        columns = rows.select(self._layout.schema(rows.schema).names)
        if file is None:
            part = self._directory.part(f"{self._name}-{first:020d}")
            writer = open_writer(self._layout.format, part, columns.schema, self._facts())
            file = self._open[label] = _OpenFile(writer, part, label, first, last, 0)
        file.writer.write(columns, next_offset=last + 1)
        file.last_offset = last
        file.records += rows.num_rows

    def _close(self, file: _OpenFile, next_offset: int) -> StagedFile:
        file.writer.close(self._facts() | {"tierd.next_offset": str(next_offset), "tierd.records": str(file.records)})
        size_bytes = sync_file(file.part)
        name = f"{self._name}-{file.first_offset:020d}-{file.last_offset:020d}.{self._layout.format}"
        staged = self._directory.stage(file.part, name)
        return StagedFile(staged, "/".join([*self._folders(file.label), name]), file.records, size_bytes)

    @property
    def _name(self) -> str:
        topic, number = self._partition.topic, self._partition.partition
        if len(topic) > _LONG_NAME:
            topic = f"{topic[:150]}-{uuid_to_text(self._partition.topic_id)}"
        return f"{topic}-{number}"

    def _folders(self, label: str) -> list[str]:
        values = {
            ExportFolder.TOPIC: self._partition.topic,
            ExportFolder.PARTITION: str(self._partition.partition),
            ExportFolder.DATE: label,
        }
        return [f"{folder}={values[folder]}" for folder in self._layout.folders]

    def _facts(self) -> dict[str, str]:
        return {
            "tierd.cluster_id": self._layout.cluster_id,
            "tierd.topic": self._partition.topic,
            "tierd.topic_id": uuid_to_text(self._partition.topic_id),
            "tierd.partition": str(self._partition.partition),
            "tierd.isolation": self._layout.isolation.value,
            "tierd.from_offset": str(self.next_offset),
        }


def _date(day: int) -> str:
    return _NO_DATE if day == _NO_DAY else date.fromordinal(day + _EPOCH_DAY).isoformat()
