"""KeyComparison: the latest record per key in a copy and in the tier, after a log cleaner has been at work in either.

A record that the copy lacks is explained if a later record of either log has its key. So is a tombstone, which a
cleaner removes after ``delete.retention.ms``, unless the copy still has an older value of the key: the key would come
back. Memory holds only the keys that are not explained yet.
"""

from hashlib import blake2b

from tierd.log import Record

MAX_KEYS = 1_000_000


class KeyComparison:
    """Keys whose latest record the copy may lack. The records come in ascending order, group by group.

    Attributes:
        is_too_large: more keys waited for an explanation than fit in memory, and the comparison ended.
    """

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        """Begin without a record; ``max_keys`` bounds the keys in memory."""
        self.is_too_large = False
        self._lacking: dict[bytes, int] = {}  # latest record with a value
        self._deleted: dict[bytes, int] = {}  # latest tombstone
        self._max_keys = max_keys

    @property
    def is_waiting(self) -> bool:
        """Return True if a later record may still explain something."""
        return bool(self._lacking or self._deleted)

    @property
    def deleted_before(self) -> int:
        """Return the exclusive end of the offsets whose records could bring a deleted key back."""
        return max(self._deleted.values(), default=0)

    @property
    def unexplained(self) -> list[int]:
        """Return the offsets of the records that the copy lacks without an explanation, ascending."""
        return sorted(self._lacking.values())

    def lacks(self, key: bytes, offset: int, *, is_tombstone: bool) -> None:
        """Take in a record of the tier that the copy lacks."""
        if self.is_too_large:
            return
        waiting = self._deleted if is_tombstone else self._lacking
        waiting[_digest(key)] = offset
        if len(self._lacking) + len(self._deleted) > self._max_keys:
            self.is_too_large = True
            self._lacking.clear()
            self._deleted.clear()

    def follow(self, record: Record) -> None:
        """Take in any record of either log, after the calls of ``lacks`` for the records of its group."""
        if record.key is None:
            return
        key = _digest(record.key)
        for waiting in (self._lacking, self._deleted):
            if waiting.get(key, record.offset) < record.offset:
                del waiting[key]

    def is_revived_by(self, record: Record) -> bool:
        """Return True if a record of the copy brings a deleted key back. Asked for after all records came."""
        if record.key is None or record.value is None:
            return False
        return record.offset < self._deleted.get(_digest(record.key), record.offset)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
