"""PeerConnector: opens links to the push listeners of peers, and checks that the expected daemon answers."""

import asyncio
import os
import ssl
from typing import Final

from tierd.errors import TierError
from tierd.replication.links.link_errors import (
    PushLinkError,
    PushLinkLostError,
    PushLinkRefusedError,
    PushLinkTimeoutError,
)
from tierd.replication.links.link_identity import LinkIdentity, NodeName, certified_name
from tierd.replication.links.link_limits import LinkLimits, require_loopback
from tierd.replication.links.node_certificates import NodeCertificates
from tierd.replication.links.peer_link import PeerLink
from tierd.replication.model.messages import HelloMessage, PushApi
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerNode

_TLS_CLOSING_S: Final = 1.0
_REFUSALS: Final = {
    PushErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the certificate of this daemon is for another node or cluster",
    PushErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster",
    PushErrorCode.STALE_BROKER_EPOCH: "a newer process with the node_id of this daemon is connected",
    PushErrorCode.INVALID_REQUEST: "it has the same node_id as this daemon",
}


class PeerConnector:
    """Opens links for this process."""

    def __init__(
        self,
        me: LinkIdentity,
        *,
        certificates: NodeCertificates | None,
        allow_plaintext: bool = False,
        limits: LinkLimits | None = None,
    ) -> None:
        """Connect as ``me``; without certificates to this host only, or with ``allow_plaintext`` to any."""
        self._me = me
        self._certificates = certificates
        self._allow_plaintext = allow_plaintext
        self._limits = limits or LinkLimits()

    async def open(self, node: PeerNode) -> PeerLink:
        """Connect to a peer, and exchange Hellos. A cancellation leaves no socket behind.

        Raises:
            PushLinkLostError: the peer does not answer, or ended the connection.
            PushLinkError: a certificate, the cluster or the node is not the expected one, or TLS is missing.
        """
        name = f"node {node.node_id} at {node.host}:{node.port}"
        link = PeerLink(name, limits=self._limits)
        is_ready = False
        try:
            async with asyncio.timeout(self._limits.hello_timeout_s):
                await self._connect(link, node)
                hello = await link.exchange_hellos(self._me.hello(PushApi))
            self._check(link, node, hello, name)
            is_ready = True
        except ssl.SSLError as error:
            raise _tls_error(name, error) from error
        except TimeoutError as error:
            timeout_s = self._limits.hello_timeout_s
            raise PushLinkTimeoutError(f"{name} did not answer a Hello within {timeout_s:g} s") from error
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
            raise PushLinkLostError(f"{name} cannot be reached: {cause}") from error
        except PushLinkLostError as error:
            raise self._lost_error(link, name, error) from error
        finally:
            if not is_ready:
                link.connection.abort()
        return link

    async def _connect(self, link: PeerLink, node: PeerNode) -> None:
        context = None if self._certificates is None else (await self._certificates.latest()).client
        await asyncio.get_running_loop().create_connection(
            lambda: link.connection,
            node.host,
            node.port,
            ssl=context,
            server_hostname=None if context is None else node.host,
            ssl_handshake_timeout=None if context is None else self._limits.hello_timeout_s,
            ssl_shutdown_timeout=None if context is None else _TLS_CLOSING_S,
        )
        if context is None and not self._allow_plaintext:
            require_loopback(link.connection.transport.get_extra_info("peername")[0], purpose="a connection to")

    def _lost_error(self, link: PeerLink, name: str, error: PushLinkLostError) -> TierError:
        """Return the error for the end of a connection without a Hello of the peer.

        A peer looks at the certificate of this daemon after the handshake of this side (TLS 1.3), and asyncio sends no
        alert when it refuses the certificate.
        """
        if isinstance(link.connection.failure, ssl.SSLError):
            return _tls_error(name, link.connection.failure)
        if self._certificates is None:
            return error
        if (expired_at := self._certificates.expired_at()) is not None:
            return PushLinkError(
                f"{name} refused the certificate of this daemon, which has expired at {expired_at:%Y-%m-%d %H:%M} UTC",
                remedy="renew the file that push.tls.certificate_file names",
            )
        return PushLinkLostError(
            f"{name} closed the connection before its Hello, as it does with a certificate that it refuses",
            remedy="the log of that daemon names the cause, in a line push_peer_refused",
        )

    def _check(self, link: PeerLink, node: PeerNode, hello: HelloMessage, name: str) -> None:
        """Raise an error unless Hello and certificate are those of ``node``."""
        if hello.error_code:
            cause = f"{name} refused the connection: {_refusal(hello.error_code)}"
            raise PushLinkRefusedError(cause, refusal=hello.error_code)
        expected = NodeName(self._me.cluster_id, node.node_id)
        said = NodeName(hello.cluster_id, hello.node_id)
        if said != expected:
            raise PushLinkError(
                f"{name} says to be {said}, and {expected} was expected",
                remedy="compare push.peers with push.node_id and the cluster of that daemon",
            )
        certificate = link.connection.transport.get_extra_info("peercert")
        if self._certificates is not None and certified_name(certificate) != expected:
            raise PushLinkError(
                f"{name} has the certificate of {certified_name(certificate)}, and {expected} was expected",
                remedy="let push.tls of that daemon name a certificate of its own",
            )


def _refusal(error_code: int) -> str:
    known = next((code for code in PushErrorCode if code == error_code), None)
    if known is None:
        return f"error {error_code}"
    return f"error {error_code}, {_REFUSALS.get(known, known.name)}"


def _tls_error(name: str, error: ssl.SSLError) -> TierError:
    """Return the error for a failed handshake, or for an alert behind it: TLS 1.3 checks our certificate late."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return PushLinkError(
            f"{name}: its certificate is refused: {error.verify_message}",
            remedy="let push.tls.ca_file name the daemons' authority, and let certificates name their hosts",
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in reason:
        return PushLinkError(
            f"{name} refused the certificate of this daemon: {reason}",
            remedy="let push.tls.certificate_file name a valid certificate of the daemons' authority",
        )
    return PushLinkError(f"{name}: TLS failed: {reason}", remedy="set push.tls on both hosts, or on none")
