"""Choice of the topic that a name means among several topics of that name, where no log dir says it."""

from tierd.metadata.views.partition_view import PartitionView
from tierd.model import RemoteLogSegmentState


def copied_last_ms(view: PartitionView) -> tuple[bool, int]:
    """Return a key that orders the incarnations of a partition: the one that readers mean has the greatest.

    Copies count, deletions do not: a deleted incarnation is still being deleted after the next one began to be copied.
    An incarnation of which nothing is readable comes before every other.
    """
    rows = view.list()
    readable = [m.event_timestamp_ms for m in rows if m.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    if readable:
        return True, max(readable)
    return False, max((m.event_timestamp_ms for m in rows), default=-1)
