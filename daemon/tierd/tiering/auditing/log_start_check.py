"""Findings about the log start record of a partition (``log-start.json``), compared with its row. Decisions only."""

from tierd.metadata import PartitionRow
from tierd.remote import StoredLogStart
from tierd.tiering.auditing.tier_findings import Finding, Severity

STRAY = "stray-log-start"
DISAGREES = "log-start-disagrees"


def disagreement(row: PartitionRow | None, stored: StoredLogStart | None, key: str) -> Finding | None:
    """Return a finding where the row takes the record for written, and the record says something else.

    A rebuild goes by the record: one that is too low brings deleted records back, one that is too high hides records.
    """
    if row is None or row.deletion is not None or not row.is_log_start_recorded:
        return None
    log_start = row.log_start_offset or 0
    if stored is None:
        if log_start == 0:
            return None
        found = "the record is gone"
    elif stored.record is None:
        found = stored.damage
    elif stored.record.log_start_offset == log_start:
        return None
    else:
        found = f"the record has log start {stored.record.log_start_offset}"
    goes = "a rebuild would go by the record"
    if stored is not None and stored.unauthenticated is not None:
        goes = "a rebuild would not believe the record"
    what = f"the metadata has log start {log_start}, {found}; {goes}"
    remedy = "run tierd repair-tier; the daemon that leads the partition then writes the record again"
    return Finding(Severity.WARNING, DISAGREES, what, key, remedy)


def stray(row: PartitionRow | None, key: str) -> Finding | None:
    """Return a finding for a record whose partition was deleted, or is unknown to the metadata."""
    if row is None:
        remedy = "if its topic is really gone, delete it with the store's own tools; else tierd rebuild-metadata"
        what = "a log start record of a partition that the metadata does not know"
    elif row.is_tombstone:
        what, remedy = "the log start record of a partition that was deleted", "run tierd repair-tier"
    else:
        return None
    return Finding(Severity.WARNING, STRAY, what, key, remedy)
