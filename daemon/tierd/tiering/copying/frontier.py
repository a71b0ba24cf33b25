"""Where the tier ends and begins for one log, as metadata and directory have it (remote-tiering 10.2, 10.3)."""

from tierd.log import PartitionScan
from tierd.metadata import PartitionView, effective_lineage
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.plan import CopiedThrough, highest_copied, initial_log_start_offset, local_log_start


def frontier(view: PartitionView, scan: PartitionScan) -> CopiedThrough:
    """What of the log that was scanned is in the tier, along its own lineage."""
    # The active segment's base is an offset that the log surely reaches.
    reached = scan.segments[-1].base_offset if scan.segments else 0
    return highest_copied(effective_lineage(view, scan.lineage), view.highest_offset_for_epoch, log_end_offset=reached)


def first_log_start(view: PartitionView, scan: PartitionScan, offsets: BrokerOffsets) -> int:
    """Where the log begins over both tiers, of a partition that nobody ever led long enough to say."""
    return initial_log_start_offset(
        effective_lineage(view, scan.lineage),
        view.list_epoch,
        local_log_start_offset=local_log_start(scan.segments, checkpointed=offsets.log_start_offset),
    )


def began_anew_at(scan: PartitionScan, offsets: BrokerOffsets, *, log_start_offset: int) -> int | None:
    """Where a log begins that ends below the tier's log start; None for any other.

    Its disk was replaced, or an unclean election cut it. Until it had grown beyond that start, whatever it holds would
    be copied and read by nobody.
    """
    if offsets.high_watermark is None or not scan.segments:
        return None
    reached = max(offsets.high_watermark, scan.segments[-1].base_offset)
    return scan.segments[0].base_offset if reached < log_start_offset else None
