"""Operations on a log as a whole: housekeeping, renaming, clean stop, deletion (log-format 6.1, 6.2 and 10)."""

from tierd.log.partition.log_state import LogState


def housekeep(state: LogState, now_ms: int) -> None:
    """Sync rolled segments, write pending files, unlink, and expire producers, as Kafka's scheduler does for a log.

    Raises:
        OSError: the disk failed.
    """
    _write_pending(state, now_ms=now_ms)
    state.segments.run_due_deletions(now_ms)
    if now_ms >= state.producer_expiry_due_ms:
        state.producer_expiry_due_ms = now_ms + state.config.producer_id_expiration_check_interval_ms
        with state.offsets.lock:
            state.producers.remove_expired(now_ms)


def is_housekeeping_due(state: LogState, now_ms: int) -> bool:
    """Return True if ``housekeep`` would find something to do."""
    deletion_due_ms = state.segments.pending_deletions.next_due_ms
    return (
        (state.partition_metadata is not None and state.partition_metadata.is_pending)
        or bool(state.unsynced_snapshots)
        or state.rolled_up_to > state.segments.recovery_point
        or (state.leader_epochs is not None and state.leader_epochs.is_pending)
        or (deletion_due_ms is not None and now_ms >= deletion_due_ms)
        or now_ms >= state.producer_expiry_due_ms
    )


def rename_directory(state: LogState, name: str) -> bool:
    """Rename the directory of a log that is deleted or set aside; return False when it has that name already.

    Kafka: UnifiedLog.renameDir with shouldReinitialize=false; no log of tierd goes on under another name.

    Raises:
        OSError: the disk failed.
    """
    if state.partition_metadata is not None:
        state.partition_metadata.maybe_flush()
    if not state.segments.rename_directory(name):
        return False
    state.producers.moved(state.segments.directory)
    _detach_epochs(state)
    state.leader_epochs = state.partition_metadata = None
    return True


def close(state: LogState) -> None:
    """Flush everything, write down the producers at the log end, trim and close the files (Kafka: UnifiedLog.close).

    Raises:
        OSError: the disk failed.
    """
    _write_pending(state)
    state.flush(state.segments.log_end.offset, including=True)
    state.producers.take_snapshot(sync=True)
    state.segments.close()
    state.is_closed = True


def delete(state: LogState) -> None:
    """Remove the segments, the snapshots and the directory (Kafka: UnifiedLog.delete).

    Raises:
        OSError: the disk failed.
    """
    _detach_epochs(state)
    state.segments.delete_all_segments(now_ms=0)  # at once
    state.segments.delete_directory()
    state.is_closed = True


def _write_pending(state: LogState, *, now_ms: int | None = None) -> None:
    if state.partition_metadata is not None:
        state.partition_metadata.maybe_flush()
    state.sync_rolled(now_ms=now_ms)
    if state.leader_epochs is not None:
        state.leader_epochs.write_pending()


def _detach_epochs(state: LogState) -> None:
    """Write no epochs into a directory that is on its way out."""
    if state.leader_epochs is not None:
        state.leader_epochs.detach()
