"""The steps of ``check-config --online`` for push replication: certificate, address, peers, directory of the copies.

No port is bound, and nothing is sent but a Hello: the daemon may run. The Hello has process epoch 0: for a peer, the
daemon is the newer process of this node, and keeps its links.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Final

from tierd import __version__
from tierd.app.checks.check_endpoint import require_own_address
from tierd.app.checks.checklist import Checklist
from tierd.clock import Clock
from tierd.config import PushReplicationSettings, split_address
from tierd.errors import StateDirError
from tierd.files import nearest_existing
from tierd.log import BrokerIdentity
from tierd.replication import (
    LinkIdentity,
    NodeCertificates,
    PeerConnector,
    PeerNode,
    PushErrorCode,
    PushLinkError,
    PushLinkRefusedError,
)

_AREA: Final = "push replication"
_DAY_S: Final = 86_400


async def check_push(
    push: PushReplicationSettings, identity: BrokerIdentity | None, checklist: Checklist, *, clock: Clock
) -> None:
    """Check what the section ``push`` names; without ``identity`` neither the certificate's name nor peers."""
    certificates = NodeCertificates(lambda: push.tls, clock=clock) if push.tls.is_configured else None
    me = None if identity is None else _me(push, identity)
    is_sound = True
    if certificates is not None:
        is_sound = await checklist.step(_AREA, "certificate", partial(_usable_certificate, certificates, me, clock))
    if push.listen is not None:
        await checklist.step(_AREA, f"listen {push.listen}", partial(_own_address, push.listen))
    if me is not None and is_sound:
        connector = PeerConnector(me, certificates=certificates, allow_plaintext=push.allow_plaintext)
        for peer in push.peers:
            node = PeerNode(peer.node_id, peer.host, peer.port)
            await checklist.step(_AREA, f"node {peer.node_id}", partial(_reached, connector, node))
    if push.standby.log_dir is not None:
        await checklist.step(_AREA, "standby.log_dir", partial(_usable_log_dir, push.standby.log_dir))


def _me(push: PushReplicationSettings, identity: BrokerIdentity) -> LinkIdentity:
    node_id = identity.node_id if push.node_id is None else push.node_id
    return LinkIdentity(cluster_id=identity.cluster_id, node_id=node_id, process_epoch=0, software_version=__version__)


async def _usable_certificate(certificates: NodeCertificates, me: LinkIdentity | None, clock: Clock) -> str:
    await certificates.load()
    if me is not None:
        certificates.require_name(me.name)
    if certificates.problem:
        raise PushLinkError(
            certificates.problem, remedy="put a new certificate there; tierd takes it without a restart"
        )
    contexts = await certificates.latest()
    days = int((contexts.valid_until.timestamp() - clock.now_ms() / 1000) / _DAY_S)
    return f"of {contexts.name}, fits its key, and is valid for {days} days"


async def _own_address(listen: str) -> str:
    await require_own_address(split_address(listen)[0], place="push.listen")
    return "an address of this host"


async def _reached(connector: PeerConnector, node: PeerNode) -> str:
    try:
        link = await connector.open(node)
    except PushLinkRefusedError as error:
        if error.refusal != PushErrorCode.STALE_BROKER_EPOCH:
            raise
        return "answers; it is connected with the daemon of this host"
    await link.close()
    return "answers"


async def _usable_log_dir(log_dir: Path) -> str:
    return await asyncio.to_thread(_require_usable, log_dir)


def _require_usable(log_dir: Path) -> str:
    existing = nearest_existing(log_dir)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise StateDirError(
            f"{existing} is no directory that user id {os.geteuid()} can write to",
            remedy="make it writable, or correct push.standby.log_dir",
        )
    return "writable" if existing == log_dir else f"not made yet; {existing} is writable"
