"""History: every batch that any leader has appended, with the batch before it: the tree that each log is a path of.

::

    epoch 1:  a ── b ── c ── d            a log with c at its end has a, b and c, and nothing else
                    └── e ── f            epoch 2, of a leader that had not got c: it cuts the tree at b

A log in which each batch has the same batch before it as in this tree has the prefix property for every leader: two
logs that have one batch in common are the same up to it, by batches and by epochs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from tierd.kernels import crc32c

_HEADER = Struct(">qiibIhiqqqhii")
_PAYLOAD = Struct(">qiB")
_PAYLOAD_AT = 61
NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """One batch of the history. All records of a batch have one key.

    Attributes:
        uid: number of the batch; the bytes have it.
        parent: uid of the batch before; ``NO_BATCH`` for the first one.
        is_tombstone: the key is deleted.
    """

    uid: int
    parent: int
    base_offset: int
    next_offset: int
    epoch: int
    key: int
    is_tombstone: bool
    data: bytes


class History:
    """The tree of the batches of one partition.

    Attributes:
        cleaned_offset: exclusive end of what the cleaner of any node may have changed.
    """

    def __init__(self) -> None:
        self.cleaned_offset = 0
        self._batches: list[KnownBatch] = []

    def __getitem__(self, uid: int) -> KnownBatch:
        return self._batches[uid]

    def new_batch(
        self, *, parent: int, base_offset: int, count: int, epoch: int, key: int, is_tombstone: bool, size: int
    ) -> KnownBatch:
        """Add a batch of ``count`` records and about ``size`` bytes."""
        uid, next_offset = len(self._batches), base_offset + count
        payload = _PAYLOAD.pack(uid, key, is_tombstone) + bytes(max(size - _PAYLOAD_AT - _PAYLOAD.size, 0))
        length = _PAYLOAD_AT - 12 + len(payload)
        data = bytearray(
            _HEADER.pack(base_offset, length, epoch, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count) + payload
        )
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        batch = KnownBatch(uid, parent, base_offset, next_offset, epoch, key, is_tombstone, bytes(data))
        self._batches.append(batch)
        return batch

    def of(self, data: bytes) -> KnownBatch:
        """Return the batch with these bytes.

        Raises:
            AssertionError: no leader has appended them.
        """
        uid: int = _PAYLOAD.unpack_from(data, _PAYLOAD_AT)[0]
        assert 0 <= uid < len(self._batches), "a log has a batch that no leader has appended"
        batch = self._batches[uid]
        assert batch.data == data, f"a log has other bytes than batch {uid} of the leader"
        return batch

    def path(self, uid: int) -> Iterator[KnownBatch]:
        """Yield the batch and all before it, the last one first."""
        while uid != NO_BATCH:
            batch = self._batches[uid]
            yield batch
            uid = batch.parent

    def is_on_path(self, uid: int, tip: int) -> bool:
        """Return True if the path that ends with ``tip`` has the batch ``uid``."""
        wanted = self._batches[uid].base_offset
        for batch in self.path(tip):
            if batch.uid == uid:
                return True
            if batch.base_offset < wanted:
                return False
        return False
