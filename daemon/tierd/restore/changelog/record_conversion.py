"""Conversion of records to what a store takes (changelog-restore 3.3)."""

from operator import add
from struct import Struct

from tierd.restore.changelog.changelog_source import ChangelogRecords

_TIMESTAMP = Struct(">q")


def converted(records: ChangelogRecords, *, timestamped: bool) -> ChangelogRecords:
    """Return the records as a store takes them.

    For a timestamped store the value is ``timestamp i64 big-endian | value``. A tombstone stays a tombstone.
    """
    if not timestamped:
        return records
    pack = _TIMESTAMP.pack
    if None in records.values:
        values = [
            None if value is None else pack(timestamp_ms) + value
            for timestamp_ms, value in zip(records.timestamps_ms, records.values, strict=True)
        ]
    else:  # a loop without bytecode
        values = list(map(add, map(pack, records.timestamps_ms), records.values))
    return ChangelogRecords(
        offsets=records.offsets,
        timestamps_ms=records.timestamps_ms,
        keys=records.keys,
        values=values,
        headers=records.headers,
        leader_epochs=records.leader_epochs,
        timestamp_types=records.timestamp_types,
    )
