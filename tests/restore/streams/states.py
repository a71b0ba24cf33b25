"""Stores of Kafka Streams for tests: their raw contents on disk, and the changelogs that fill them."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from tests.fakes.clock import FakeClock
from tierd.log import Record, iter_batches
from tierd.model import Lineage
from tierd.restore.changelog.changelog_errors import ChangelogRangeError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords
from tierd.restore.streams.state_directory import StreamsStateDirectory
from tierd.restore.streams.streams_restore import RestoredStreamsStore, restore_streams_store
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType

IDENTITY = ChangelogIdentity(topic_id=None, lineage=Lineage(), delete_retention_ms=None)

COUNTS = StreamsStore(
    name="counts", changelog="golden-counts-changelog", subtopology=0, type=StreamsStoreType.TIMESTAMPED_KEY_VALUE
)
WINDOWS = StreamsStore(
    name="windows",
    changelog="golden-windows-changelog",
    subtopology=0,
    type=StreamsStoreType.TIMESTAMPED_WINDOW,
    retention_ms=86_400_000,
    segment_interval_ms=43_200_000,
)

Content = dict[str, dict[bytes, bytes]]
"""By directory below the store's and column family: keys and values, as RocksDB has them."""


def read_store(directory: Path) -> Content:
    """Read every RocksDB directory of a store that is closed."""
    content: Content = {}
    for current in sorted(directory.rglob("CURRENT")):
        path = current.parent
        for family in sorted(Rdict.list_cf(str(path), Options(raw_mode=True))):
            if family == "offsets":  # of Streams 4.3
                continue
            families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path), Options(raw_mode=True))}
            database = Rdict(str(path), Options(raw_mode=True), families, AccessType.read_only())
            data = database.get_column_family(family)
            content[f"{path.relative_to(directory)}:{family}"] = {_raw(key): _raw(value) for key, value in data.items()}
            del data
            database.close()
            (path / "rocksdict-config.json").unlink(missing_ok=True)
    return content


def _raw(data: object) -> bytes:
    assert isinstance(data, bytes)
    return data


def read_log(directory: Path) -> list[Record]:
    """Return the records of a changelog's directory, without control records."""
    batches = (
        batch
        for file in sorted(directory.glob("*.log"))
        for batch in iter_batches(file.read_bytes(), name=str(file))
        if not batch.is_control
    )
    return [record for batch in batches for record in batch.records()]


def records(*rows: tuple[bytes | None, bytes | None, int], first_offset: int = 0) -> list[Record]:
    """Return records of (key, value, timestamp), with offsets in order."""
    return [
        Record(offset, timestamp_ms, "CreateTime", key, value, (), 0)
        for offset, (key, value, timestamp_ms) in enumerate(rows, first_offset)
    ]


def columns(rows: Iterable[Record], *, size: int) -> Iterator[ChangelogRecords]:
    """Cut records into batches of ``size``."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield ChangelogRecords.of(batch)


class ListedChangelog:
    """Changelog in memory; ``stop_after`` batches, reading it fails, as when a process is killed.

    Attributes:
        asked: offsets from which it was read; None stands for the start.
    """

    def __init__(
        self, rows: Sequence[Record], *, size: int = 100, stop_after: int | None = None, end_offset: int | None = None
    ) -> None:
        self.asked: list[int | None] = []
        self._rows = rows
        self._size = size
        self._stop_after = stop_after
        self._end_offset = end_offset if end_offset is not None else (rows[-1].offset + 1 if rows else 0)

    async def read(self, offset: int | None) -> AsyncGenerator[ChangelogRecords]:
        self.asked.append(offset)
        if offset is not None and offset > self._end_offset:
            raise ChangelogRangeError(
                partition=None,  # type: ignore[arg-type]  # only its name would be shown
                offset=offset,
                earliest_offset=0,
                end_offset=self._end_offset,
            )
        rows = [row for row in self._rows if row.offset >= (offset or 0)]
        for number, batch in enumerate(columns(rows, size=self._size)):
            if number == self._stop_after:
                raise InterruptedRestoreError
            yield batch


class InterruptedRestoreError(Exception):
    """The end of a changelog that stops early."""


async def restore(
    store: StreamsStore,
    changelog: ListedChangelog | Sequence[Record],
    state_dir: Path,
    *,
    application_id: str = "app",
    identity: ChangelogIdentity = IDENTITY,
    clock: FakeClock | None = None,
) -> RestoredStreamsStore:
    """Restore partition 0 of a store into a state directory."""
    source = changelog if isinstance(changelog, ListedChangelog) else ListedChangelog(changelog)
    state = StreamsStateDirectory.open(state_dir, application_id)
    try:
        return await restore_streams_store(
            store, 0, state=state, identity=identity, read=source.read, clock=clock or FakeClock()
        )
    finally:
        state.close()
