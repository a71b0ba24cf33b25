"""Actions that the pure part of push replication asks for; ``PushManager`` and its pushers carry them out.

The shell answers each ``OpenLink`` with ``on_link_opened`` or ``on_link_closed``, each ``SendAppend`` with
``on_response`` or ``on_link_closed``, each ``CloseLink`` with ``on_link_closed``, once nothing holds the bytes of the
link's requests any more, and each ``ReadChunk`` with ``on_chunk_read``.
"""

from typing import NamedTuple

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.model.messages import AppendRecordsRequest
from tierd.replication.model.push_session import PeerNode, PushSession, PushSessionEndReason


class PushLeader(NamedTuple):
    """This process, as its requests name it."""

    cluster_id: str
    node_id: int
    process_epoch: int


class OpenLink(NamedTuple):
    """Order to connect to a peer."""

    pusher: int
    link_id: int
    node: PeerNode


class CloseLink(NamedTuple):
    """Order to close a connection, or to abandon an attempt to connect."""

    pusher: int
    link_id: int


class SendAppend(NamedTuple):
    """Order to send a request. Requests of one link are sent in the order of their ids."""

    pusher: int
    link_id: int
    request_id: int
    request: AppendRecordsRequest
    timeout_s: float


class ReadChunk(NamedTuple):
    """Order to read whole batches of a file range from ``position`` on."""

    pusher: int
    chunk_id: int
    file: FileRecords
    position: int
    max_bytes: int


class ReleaseFile(NamedTuple):
    """Order to close a file range that is not read any more."""

    file: FileRecords


class RecordsAcknowledged(NamedTuple):
    """Order to call ``on_append_records_response`` of the session."""

    session: PushSession
    log_end_offset: int
    log_start_offset: int
    sent_at_s: float


class PushSessionEnded(NamedTuple):
    """Order to call ``on_push_session_ended`` of the session."""

    session: PushSession
    reason: PushSessionEndReason


class LeadershipDoubted(NamedTuple):
    """Order to check the leadership: a follower knows a newer leader epoch than ``leader_epoch``."""

    partition: TopicIdPartition
    leader_epoch: int


PushAction = (
    OpenLink
    | CloseLink
    | SendAppend
    | ReadChunk
    | ReleaseFile
    | RecordsAcknowledged
    | PushSessionEnded
    | LeadershipDoubted
)
