"""LinkLimits: bounds of the connections between daemons; and the hosts that may go without TLS."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.wire.push_frames import MAX_FRAME_BYTES

HELLO_FRAME_BYTES: Final = 64 << 10
"""Size of the largest frame of a peer that is not known yet."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """Bounds of both directions.

    Attributes:
        frame_bytes: size of the largest frame.
        memory_bytes: of all large frames that peers have sent to the port and that are not answered.
        links_per_node: connections that one node may have to the port; one more ends the oldest.
        outstanding: requests of one link without an answer.
        hello_timeout_s: time from the beginning of a connection until the Hellos are exchanged, TLS included.
        idle_timeout_s: time without a whole request after which the port closes a connection.
        answer_timeout_s: time from a request until the peer has taken the answer; long polls have to end before.
        closing_timeout_s: time that the last answer of a connection has to reach the peer.
        max_age_s: age at which the port closes a connection, so that the next one has the certificates of that time.
    """

    frame_bytes: int = MAX_FRAME_BYTES
    memory_bytes: int = 256 * _MIB
    links_per_node: int = 16
    outstanding: int = 64
    hello_timeout_s: float = 10.0
    idle_timeout_s: float = 60.0
    answer_timeout_s: float = 120.0
    closing_timeout_s: float = 1.0
    max_age_s: float = 12 * 3600.0


def require_loopback(host: str, *, purpose: str) -> None:
    """Refuse a connection without TLS to or from another host.

    Raises:
        PushLinkError: ``host``, an address, is not this host.
    """
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if not (mapped or address).is_loopback:
        raise PushLinkError(
            f"{purpose} {host} would be without TLS, where others can read records and forge them",
            remedy="set push.tls, or push.allow_plaintext: true in a network of which every host is trusted",
        )
