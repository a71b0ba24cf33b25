"""VersionRow: versions of one key in one segment (Kafka: RocksDBVersionedStoreSegmentValueFormatter).

::

    next_ms 8 │ oldest valid_from 8 │ (valid_from 8, size 4)… newest first │ values… oldest first

Numbers are big-endian and signed. Size -1 is a tombstone, and has no bytes. A version is valid from its own timestamp
to that of the next newer one, exclusive; the newest one to ``next_ms``. The timestamps ascend strictly, but for one
case: a row whose only version is a tombstone with ``next_ms`` equal to its timestamp says that the key was deleted
then, and that the row knows of no value. Such a row is called bare here, and degenerate in Kafka.
"""

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

_HEAD: Final = struct.Struct(">qq")
_VERSION: Final = struct.Struct(">qi")
_TOMBSTONE: Final = -1


class Version(NamedTuple):
    """Value of a key from a time on; None is a tombstone."""

    valid_from_ms: int
    value: bytes | None


@dataclass(slots=True)
class VersionRow:
    """Versions of one key, newest first; at least one.

    Attributes:
        next_ms: end of the validity of the newest version, exclusive.
    """

    next_ms: int
    versions: list[Version] = field(default_factory=list)

    @classmethod
    def of(cls, value: bytes | None, *, valid_from_ms: int, valid_to_ms: int) -> Self:
        """Return a row with one version."""
        return cls(valid_to_ms, [Version(valid_from_ms, value)])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse a row.

        Raises:
            ValueError: the bytes are no row.
        """
        try:
            next_ms, oldest_ms = _HEAD.unpack_from(data)
            sizes: list[tuple[int, int]] = []
            position = _HEAD.size
            while not sizes or sizes[-1][0] != oldest_ms:
                sizes.append(_VERSION.unpack_from(data, position))
                position += _VERSION.size
        except struct.error as error:
            raise ValueError(f"{len(data)} bytes end inside a row of versions") from error
        row, end = cls(next_ms), len(data)
        for valid_from_ms, size in sizes:
            start = end - max(size, 0)
            if start < position:
                raise ValueError(f"{len(data)} bytes are too few for the values of a row of versions")
            row.versions.append(Version(valid_from_ms, None if size < 0 else data[start:end]))
            end = start
        if end != position:
            raise ValueError(f"{end - position} bytes of a row of versions belong to no value")
        return row

    def encode(self) -> bytes:
        """Return the bytes that Kafka Streams stores."""
        sizes = [
            _VERSION.pack(version.valid_from_ms, _TOMBSTONE if version.value is None else len(version.value))
            for version in self.versions
        ]
        values = [version.value or b"" for version in reversed(self.versions)]
        return b"".join((_HEAD.pack(self.next_ms, self.oldest_ms), *sizes, *values))

    @property
    def oldest_ms(self) -> int:
        """Return the timestamp of the oldest version."""
        return self.versions[-1].valid_from_ms

    @property
    def is_bare(self) -> bool:
        """Return True if the row only says that the key was deleted at ``next_ms``."""
        return self.next_ms == self.oldest_ms

    def find(self, timestamp_ms: int) -> int:
        """Return the index of the version that is valid at ``timestamp_ms``, of [oldest_ms, next_ms)."""
        return next(i for i, version in enumerate(self.versions) if version.valid_from_ms <= timestamp_ms)

    def replace(self, index: int, version: Version) -> None:
        """Put ``version`` in the place of the one at ``index``."""
        self.versions[index] = version

    def insert(self, index: int, version: Version) -> None:
        """Put ``version`` before the one at ``index``, which is older."""
        self.versions.insert(index, version)

    def add_newest(self, version: Version, *, valid_to_ms: int) -> None:
        """Add the newest version. Versions that reach beyond its timestamp are cut, as Kafka Streams does.

        A time between ``next_ms`` and the new version is one without a value.
        """
        if version.valid_from_ms < self.next_ms:
            self._cut(version.valid_from_ms)
        if self.is_bare:
            self.versions.clear()
        if self.next_ms != version.valid_from_ms:
            self.versions.insert(0, Version(self.next_ms, None))
        self.versions.insert(0, version)
        self.next_ms = valid_to_ms

    def add_oldest(self, version: Version) -> None:
        """Add a version that is older than the others."""
        if self.is_bare:
            self.versions.clear()
        self.versions.append(version)

    def _cut(self, timestamp_ms: int) -> None:
        kept = [version for version in self.versions if version.valid_from_ms < timestamp_ms]
        self.versions = kept or [Version(timestamp_ms, None)]
        self.next_ms = timestamp_ms
