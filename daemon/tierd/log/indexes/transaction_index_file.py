"""TransactionIndexFile: the ``.txnindex`` file of a segment that is being written (log-format 3.2)."""

from pathlib import Path

from tierd.log.files.disk import Disk, DiskFile, read_artefact
from tierd.log.files.held_file import HeldFile
from tierd.log.indexes.transaction_index import ENTRY, AbortedTransaction, TransactionIndex, encode_entry


class TransactionIndexFile(HeldFile):
    """The aborted transactions of one segment; the first entry makes the file (Kafka: TransactionIndex).

    One writer. Any thread may call ``load`` and ``all``, which open the file separately.

    Attributes:
        may_exist: False once the file is known to be absent; then readers do not try to open it.
    """

    def __init__(self, disk: Disk, path: Path, *, base_offset: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.may_exist = True
        self._needs_sync = False  # nothing was written, or cut, since the last flush
        self._last_offset: int | None = None  # since it was opened, or cut

    def append(self, transaction: AbortedTransaction) -> None:
        """Write one more entry, in the order of the markers; ``flush`` makes it durable.

        Raises:
            ValueError: the marker does not follow that of the last entry.
        """
        if self._last_offset is not None and transaction.last_offset <= self._last_offset:
            raise ValueError(f"{self.path}: marker {transaction.last_offset} does not follow {self._last_offset}")
        file = self._handle()
        self._needs_sync = True
        end = file.size_bytes - file.size_bytes % ENTRY.size  # a torn entry is no entry
        file.write(end, [encode_entry(transaction)])
        self._last_offset = transaction.last_offset

    def load(self) -> TransactionIndex:
        """Return every entry; no entries without a file.

        Raises:
            CorruptIndexError: wrong content.
        """
        try:
            data = read_artefact(self._disk, self.path, name=str(self.path))
        except FileNotFoundError:
            return TransactionIndex()
        return TransactionIndex.from_bytes(data, self.base_offset, str(self.path))

    def all(self) -> tuple[AbortedTransaction, ...]:
        """Return every entry, in the order of the markers.

        Raises:
            CorruptIndexError: wrong content.
        """
        return self.load().entries

    def truncate_to(self, offset: int) -> None:
        """Remove every transaction whose marker lies at or behind ``offset``.

        Raises:
            CorruptIndexError: wrong content.
        """
        kept = [entry for entry in self.all() if entry.last_offset < offset]
        self._cut(len(kept) * ENTRY.size)
        self._last_offset = kept[-1].last_offset if kept else None

    def reset(self) -> None:
        """Remove every entry; an existing file stays, empty."""
        self._cut(0)
        self._last_offset = None

    def sanity_check(self) -> None:
        """Parse the whole file.

        Raises:
            CorruptIndexError: a transaction that ended before the segment, or content that no writer leaves behind.
        """
        self.load()

    def flush(self) -> None:
        """Make every entry durable, if the file exists."""
        if self._file or self.exists:
            self._handle().sync()
        self._needs_sync = False

    def close(self) -> None:
        """Make the written entries durable, and close the file."""
        if self._needs_sync:
            self.flush()
        self.release_handle()

    def _cut(self, size_bytes: int) -> None:
        if self._file or self.exists:
            self._needs_sync = True
            self._handle().truncate(size_bytes)

    def _handle(self) -> DiskFile:
        if self._file is None:
            self.may_exist = True
            self._file = self._disk.open(self.path, create=True)
        return self._file
