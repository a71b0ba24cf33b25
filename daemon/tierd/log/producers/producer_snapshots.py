"""The ``.snapshot`` files in a partition directory (log-format 3.3)."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from tierd.log.files.disk import Disk, read_artefact, unlink_if_there
from tierd.log.files.partition_scan import file_name, offsets_named
from tierd.log.producers.producer_state import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from tierd.model import Lineage

_SUFFIX = ".snapshot"


def is_snapshot_kept(base_offset: int, *, log_start_offset: int, lineage: Lineage | None) -> bool:
    """Return True if a log keeps a snapshot at the base of a segment that is not its first one.

    None is taken at the log start, and those there and below are deleted when the log is truncated or loaded.

    Args:
        base_offset: of the segment.
        log_start_offset: from the checkpoint of the log dir, which is older than the log; 0 without one.
        lineage: the leader epochs, whose file follows the log start sooner; None without them.
    """
    earliest = lineage.earliest if lineage is not None else None
    return base_offset > max(log_start_offset, earliest.start_offset if earliest is not None else 0)


class ProducerSnapshots:
    """The snapshots of a log that tierd owns, by their offsets, which are exclusive ends. Blocking.

    Errors of the disk are ``OSError``; a file that is gone early is no error.
    """

    def __init__(self, disk: Disk, directory: Path, offsets: Iterable[int] | None = None) -> None:
        """List the snapshots in ``directory``, unless their ``offsets`` are known."""
        self._disk = disk
        self._directory = directory
        self._offsets = self._list() if offsets is None else sorted(offsets)
        self._has_removals = False  # a power cut may bring back the name of a removed snapshot

    @property
    def offsets(self) -> tuple[int, ...]:
        """Return the offsets of the snapshots, ascending."""
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        """Return the offset of the newest snapshot; None without a snapshot."""
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: int) -> Path:
        """Return the path of a snapshot at ``offset``, existing or not."""
        return self._directory / file_name(offset, _SUFFIX)

    def load(self, offset: int) -> tuple[ProducerStateEntry, ...]:
        """Read a snapshot.

        Raises:
            CorruptIndexError: it cannot be understood.
            FileNotFoundError: it is gone.
        """
        path = self.path(offset)
        return parse_producer_snapshot(read_artefact(self._disk, path, name=str(path)), str(path))

    def write(self, offset: int, entries: tuple[ProducerStateEntry, ...], *, sync: bool) -> Path:
        """Write a snapshot anew; its checksum shows whether a crash tore it.

        Args:
            offset: in its name.
            entries: in any order.
            sync: make bytes and name durable; otherwise ``sync`` is to follow.
        """
        path = self.path(offset)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)  # Kafka does not, and what is left of a longer file spoils the checksum
            file.write(0, [encode_producer_snapshot(entries)])
            if sync:
                file.sync()
        finally:
            file.close()
        if sync:
            self._disk.sync_directory(self._directory)
        index = bisect_left(self._offsets, offset)
        if self._offsets[index : index + 1] != [offset]:
            self._offsets.insert(index, offset)
        return path

    def sync(self, offset: int) -> None:
        """Make a snapshot's bytes durable; its name is for the log to sync."""
        with suppress(FileNotFoundError):
            file = self._disk.open(self.path(offset))
            try:
                file.sync()
            finally:
                file.close()

    def delete(self, offset: int) -> None:
        """Delete a snapshot."""
        if offset in self._offsets:
            unlink_if_there(self._disk, self.path(offset))
            self._offsets.remove(offset)
            self._has_removals = True

    def mark_for_deletion(self, offset: int) -> Path | None:
        """Rename a snapshot to ``.deleted`` and forget it; return the file to unlink, None when it was gone."""
        if offset not in self._offsets:
            return None
        path = self.path(offset)
        marked = path.with_name(path.name + ".deleted")
        try:
            self._disk.rename(path, marked)
        except FileNotFoundError:
            return None
        finally:
            self._offsets.remove(offset)
        self._has_removals = True
        return marked

    def sync_removals(self) -> None:
        """Make it durable that snapshots are gone, if any are.

        Kafka leaves that to chance; but one that comes back after a truncation tells of a branch that is no more.
        """
        if self._has_removals:
            self._disk.sync_directory(self._directory)
            self._has_removals = False

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Look for snapshots anew; delete those at no segment's base, but the newest only below the highest base."""
        self._offsets = self._list()
        bases = frozenset(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and (not bases or strays[-1] > max(bases)):
            strays.pop()  # of the clean stop, at the log end
        for offset in strays:
            self.delete(offset)

    def moved(self, directory: Path) -> None:
        """Note that the partition directory has another name."""
        self._directory = directory

    def _list(self) -> list[int]:
        return offsets_named(self._disk.list_names(self._directory), _SUFFIX)
