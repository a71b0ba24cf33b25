"""RestorerSettings: limits and times of the reader (changelog-restore 3.6 and 3.7)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorerSettings:
    """Limits and times of the reader.

    Attributes:
        parallelism: stores that are restored at the same time.
        budget_bytes: memory for records that were read and not yet applied, over all stores.
        fetch_bytes: size of one read.
        batch_records: records at which a batch is applied, and its largest size.
        batch_bytes: bytes of keys and values at which a batch is applied.
        buffer_records: records of a standby above its limit that are kept; at so many it is not read on.
        poll_s: pause after a read that found nothing.
        retry_s: pause after a read that failed.
        task_timeout_s: time without progress after which a changelog that is behind is given up.
        commit_interval_s: least time between two lookups of committed offsets for standbys.
        checkpoint_interval_s: least time between two checkpoints of a task.
        checkpoint_offsets: offsets, summed over the task's stores, above which the interval leads to a checkpoint.
        restarts: times that a changelog may begin anew within ``restart_window_s``.
    """

    parallelism: int = 4
    budget_bytes: int = 128 << 20
    fetch_bytes: int = 1 << 20
    batch_records: int = 500
    batch_bytes: int = 1 << 20
    buffer_records: int = 10_000
    poll_s: float = 0.1
    retry_s: float = 1.0
    task_timeout_s: float = 300.0
    commit_interval_s: float = 30.0
    checkpoint_interval_s: float = 30.0
    checkpoint_offsets: int = 10_000
    restarts: int = 3
    restart_window_s: float = 600.0
