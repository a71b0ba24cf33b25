"""Peers of a ``PushManager``: channels in memory that take what a leader sends."""

import asyncio

from tests.replication.leader.push_story import REPLICA_EPOCH, end_of
from tierd.errors import TierError
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    PartitionAppend,
    PartitionAppendResult,
)
from tierd.replication.model.push_session import PeerNode


class FakePeers:
    """All peers of a leader.

    Attributes:
        requests: all requests that reached a peer.
        open_channels: number of channels that are not closed.
        error_codes: answers by partition; 0 by default.
        is_silent: True answers nothing.
        is_hanging: True lets connections wait for ever.
        is_refusing: True lets connections fail.
    """

    def __init__(self) -> None:
        self.requests: list[AppendRecordsRequest] = []
        self.log_end_offsets: dict[int, int] = {}
        self.error_codes: dict[int, int] = {}
        self.open_channels = 0
        self.opened = 0
        self.is_silent = False
        self.is_refusing = False
        self.is_hanging = False
        self.arrived = asyncio.Event()

    async def open(self, node: PeerNode) -> "FakeChannel":
        """Connect to a peer."""
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.is_refusing:
            raise ConnectionRefusedError(node.host)
        self.open_channels += 1
        self.opened += 1
        return FakeChannel(self)

    @property
    def parts(self) -> list[PartitionAppend]:
        """Return the partitions of all requests."""
        return [part for request in self.requests for part in request.partitions]

    def answer(self, request: AppendRecordsRequest) -> AppendRecordsResponse:
        """Take all that a request brings."""
        return AppendRecordsResponse(partitions=tuple(self._result(part) for part in request.partitions))

    def _result(self, part: PartitionAppend) -> PartitionAppendResult:
        known = self.log_end_offsets.get(part.partition, max(part.append_offset, 0))
        self.log_end_offsets[part.partition] = end = end_of(part) if part.records else known
        return PartitionAppendResult(
            topic_id=part.topic_id,
            partition=part.partition,
            error_code=self.error_codes.get(part.partition, 0),
            log_end_offset=end,
            log_start_offset=0,
        )


class FakeChannel:
    """Connection to one of the peers."""

    def __init__(self, peers: FakePeers) -> None:
        self._peers = peers
        self._closed = asyncio.Event()

    @property
    def peer_process_epoch(self) -> int:
        return REPLICA_EPOCH

    async def ask(self, request: AppendRecordsRequest, timeout_s: float) -> AppendRecordsResponse:
        self._peers.requests.append(request)
        self._peers.arrived.set()
        if self._peers.is_silent:
            async with asyncio.timeout(timeout_s):
                await self._closed.wait()
            raise TierError("the connection is closed")
        await asyncio.sleep(0)
        return self._peers.answer(request)

    async def close(self) -> None:
        await asyncio.sleep(0)
        if not self._closed.is_set():
            self._closed.set()
            self._peers.open_channels -= 1
