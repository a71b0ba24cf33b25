"""Records that clients read, by partition, in the form of the golden oracles."""

from collections.abc import Mapping
from typing import Any

Partition = tuple[str, int]
"""Topic and number."""

Records = dict[Partition, list[dict[str, Any]]]
"""Records in the order of the client, with the fields of ``ConsumedRecord`` that the client can show."""

Counts = Mapping[Partition, int]
"""Partitions that a client has to read, with the number of records that each should have.

A client that learns the ends of partitions from the server takes no notice of the numbers.
"""


def grouped(records: list[dict[str, Any]], wanted: Counts) -> Records:
    """Return records that have ``topic`` and ``partition`` by these, without them; each wanted partition is there."""
    found: Records = {partition: [] for partition in wanted}
    for record in records:
        found[record.pop("topic"), record.pop("partition")].append(record)
    return found


def isolation_level(*, committed: bool) -> str:
    """Return the name of an isolation level, as clients write it."""
    return "read_committed" if committed else "read_uncommitted"
