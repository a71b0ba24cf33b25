"""PushNode: push replication of one daemon: its port, its links, its leader's side and its standby's side.

::

    peers ──► PushListener ─┬─ FetchRecords, EpochEndOffsets, LogBounds, Assignments ──► LeaderSide
                            └─ AppendRecords ──► StandbySide, where copies are kept
    PeerConnector ──► peers: AppendRecords of the leader's side, the questions of the standby's side
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd import __version__
from tierd.app.push.leader_side import HostPartitions, LeaderSide
from tierd.app.push.room_settings import peer_nodes, port_limits
from tierd.app.push.standby_side import StandbySide
from tierd.clock import Clock
from tierd.config import LogCleanerSettings, PushReplicationSettings, split_address
from tierd.errors import LogError
from tierd.ports import ConnectionGate
from tierd.replication import (
    AppendRecordsRequest,
    LinkIdentity,
    NodeCertificates,
    OnSession,
    PeerConnector,
    PeerLink,
    PushLeader,
    PushLinkLostError,
    PushListener,
    PushListenPlan,
    StandbyIdentity,
)
from tierd.tasks import end_tasks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushContext:
    """Surroundings of push replication.

    Attributes:
        settings: return those in force.
        identity: of this process.
        local: partitions of this host.
        state_dir: has the standby's file.
        cleaner: settings of the cleaner of compacted copies.
        on_session: called when a session begins or ends.
        clock: time.
        random: in [0, 1), for jitter.
        is_short: returns True while descriptors run out.
    """

    settings: Callable[[], PushReplicationSettings]
    identity: LinkIdentity
    local: HostPartitions
    state_dir: Path
    cleaner: LogCleanerSettings
    on_session: OnSession
    clock: Clock
    random: Callable[[], float]
    is_short: Callable[[], bool]


class PushNode:
    """Push replication of this process: ``start`` first, then ``run``, which is its task. Made on the event loop."""

    def __init__(self, context: PushContext) -> None:
        """Build the parts; nothing is opened."""
        push, me = context.settings(), context.identity
        self._context = context
        self._stopping = asyncio.Event()
        self._failure: LogError | None = None
        self._certificates = (
            NodeCertificates(lambda: context.settings().tls, clock=context.clock) if push.tls.is_configured else None
        )
        self._connector = PeerConnector(me, certificates=self._certificates, allow_plaintext=push.allow_plaintext)
        self.leader = LeaderSide(
            PushLeader(me.cluster_id, me.node_id, me.process_epoch),
            context.settings,
            self._connector.open,
            context.local,
            on_session=context.on_session,
            clock=context.clock,
            random=context.random,
        )
        self.standby = self._standby_side(push) if push.is_standby else None
        self.listener = self._listener(push)

    async def start(self) -> None:
        """Read the certificates, and bind the port.

        Raises:
            ListenError: the port cannot be bound.
            PushLinkError: a certificate cannot be used, or is that of another node.
        """
        if self._certificates is not None:
            await self._certificates.load()
            self._certificates.require_name(self._context.identity.name)
        host, port = await self.listener.bind()
        log.info("push_listening", address=f"{host}:{port}", node_id=self._context.identity.node_id)

    async def run(self) -> None:
        """Replicate until ``stop``; then end the sessions, and close the copies.

        Raises:
            LogError: the log dir of the copies cannot be used.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.listener.run(), name="push listener")]
            if self.standby is not None:
                tasks.append(group.create_task(self._keep_copies(self.standby), name="standby"))
            await self.leader.run(self._stopping)
            await end_tasks(tasks)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let ``run`` end."""
        self._stopping.set()

    def follow(self) -> None:
        """Take the settings in force after a change."""
        self.leader.follow()
        if self.standby is not None:
            self.standby.follow()

    def refresh(self) -> None:
        """Tell the standbys of settings of topics that have changed."""
        self.leader.leading.refresh()

    @property
    def identity(self) -> LinkIdentity:
        """Return the identity of this process on its links."""
        return self._context.identity

    @property
    def is_enabled(self) -> bool:
        """Return False while the configuration switches sessions off."""
        return self._context.settings().enabled

    @property
    def certificate_problem(self) -> str:
        """Return why the certificate is no good; empty when it is, and without TLS."""
        return "" if self._certificates is None else self._certificates.problem

    @property
    def not_ready(self) -> str:
        """Return why push replication does not work yet; empty when it does."""
        return "" if self.standby is None else self.standby.not_ready

    async def _keep_copies(self, standby: StandbySide) -> None:
        try:
            await standby.run()
        except LogError as error:
            self._failure = error
            self._stopping.set()

    def _standby_side(self, push: PushReplicationSettings) -> StandbySide:
        me = self._context.identity
        return StandbySide(
            StandbyIdentity(
                cluster_id=me.cluster_id,
                node_id=me.node_id,
                process_epoch=me.process_epoch,
                leaders=push.standby.leaders or None,
            ),
            self._context.settings,
            self._open_leader,
            state_dir=self._context.state_dir,
            cleaner=self._context.cleaner,
            clock=self._context.clock,
        )

    def _listener(self, push: PushReplicationSettings) -> PushListener:
        assert push.listen is not None, "asked for with an address only"
        host, port = split_address(push.listen)
        context, handlers = self._context, dict(self.leader.server.handlers)
        if self.standby is not None:
            handlers[AppendRecordsRequest] = self.standby.append_records
        return PushListener(
            PushListenPlan(host=host, port=port, certificates=self._certificates, allow_plaintext=push.allow_plaintext),
            context.identity,
            handlers,
            ConnectionGate(port_limits(push), clock=context.clock, is_short=context.is_short),
            clock=context.clock,
        )

    async def _open_leader(self, node_id: int) -> PeerLink:
        node = peer_nodes(self._context.settings()).get(node_id)
        if node is None:
            raise PushLinkLostError(f"node {node_id} is no peer any more", remedy="add it to push.peers")
        return await self._connector.open(node)


def link_identity(*, cluster_id: str, node_id: int, process_epoch: int) -> LinkIdentity:
    """Return the identity of this process on its links."""
    return LinkIdentity(
        cluster_id=cluster_id, node_id=node_id, process_epoch=process_epoch, software_version=__version__
    )
