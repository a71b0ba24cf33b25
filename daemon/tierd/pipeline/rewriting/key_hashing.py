"""KeyHashing: gathers the hashes of the keys of an output while its batches are written."""

from typing import Final

import numpy as np

from tierd.log import KEY_ROW_BYTES, KeyHashes, key_secret_id
from tierd.pipeline.rewriting.record_rows import MAX_OPENED_RECORDS, RecordRows
from tierd.pipeline.rewriting.scan import keys_of

MAX_KEY_HASHES_BYTES: Final = 32 << 20
"""Encoded hashes of one segment, which a worker has in memory; below the limit of an index in the manifest."""
_MAX_SHARE: Final = 1 / 8  # of the log; larger hashes save too few reads
_MAX_PAYLOAD_BYTES: Final = 128 << 20  # with new timestamps a batch stays far below what can be opened
_MAX_DISTANCE: Final = int(np.iinfo(np.uint32).max)


class KeyHashing:
    """Hashes of the kept records of one output, in order; none if a scan of the output would find more than keys.

    A scan also notes transactional, control and unopened batches. An output with such a batch gets no hashes, so that
    hashes and a scan always say the same, whatever transactions a later run knows to be aborted.
    """

    def __init__(self, secret: bytes, *, base_offset: int, max_share: float = _MAX_SHARE) -> None:
        """Begin with an empty output.

        Args:
            secret: 16 bytes.
            base_offset: of the output.
            max_share: largest size of the hashes, as a share of the output's.
        """
        self._secret = secret
        self._base_offset = base_offset
        self._max_share = max_share
        # Bytes, not arrays: an output may have a million batches of one record, and an array takes a hundred bytes.
        self._columns: tuple[bytearray, bytearray, bytearray] | None = (bytearray(), bytearray(), bytearray())

    def add(self, rows: RecordRows, keep: np.ndarray) -> None:
        """Take the rows of the next batches that the output has: those of ``keep``, bool[n].

        The batches are neither transactional nor control batches.
        """
        if self._columns is None or not rows.size:
            return
        if len(rows.payload) > _MAX_PAYLOAD_BYTES or rows.size > MAX_OPENED_RECORDS:
            self.refuse()  # a scan may not open the batch
            return
        keys = keys_of(rows.where(keep & (rows.key_size >= 0)), self._secret)
        if not len(keys):
            return
        distance = keys.offset - self._base_offset
        size_bytes = sum(map(len, self._columns)) + KEY_ROW_BYTES * len(keys)
        if size_bytes > MAX_KEY_HASHES_BYTES or int(distance.min()) < 0 or int(distance.max()) > _MAX_DISTANCE:
            self.refuse()
            return
        for column, more in zip(self._columns, (keys.hash_hi, keys.hash_lo, distance.astype(np.uint32)), strict=True):
            column.extend(more.tobytes())

    def refuse(self) -> None:
        """Note that the output has a batch of which a scan would note more than keys."""
        self._columns = None

    def finish(self, log_size_bytes: int) -> bytes | None:
        """Return the encoded hashes, and forget them; None if there shall be none, or they are too large for the log.

        Args:
            log_size_bytes: of the complete output.
        """
        columns, self._columns = self._columns, None
        if columns is None:
            return None
        hi, lo, distance = map(np.frombuffer, columns, (np.int64, np.int64, np.uint32))
        try:
            hashes = KeyHashes(key_secret_id(self._secret), self._base_offset, hi, lo, distance)
        except ValueError:  # a batch whose offsets do not ascend
            return None
        return hashes.to_bytes() if hashes.size_bytes <= self._max_share * log_size_bytes else None
