"""LinkRegistry: the links that peers have to the push listener, by node."""

from typing import Protocol

from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity


class EndableLink(Protocol):
    """Link of a peer."""

    def abort(self) -> None:
        """End the link at once."""


class LinkRegistry:
    """Links whose peers are known. A node has links of one process only, and no more than a number of them."""

    def __init__(self, *, node_id: int, links_per_node: int) -> None:
        """Begin without links; ``node_id`` is that of this daemon."""
        self._node_id = node_id
        self._links_per_node = links_per_node
        self._links: dict[int, dict[EndableLink, int]] = {}  # with the process epoch, the oldest link first

    @property
    def nodes(self) -> dict[int, int]:
        """Return the number of links of each node that has some."""
        return {node_id: len(links) for node_id, links in self._links.items()}

    def admit(self, link: EndableLink, peer: PeerIdentity) -> PushErrorCode:
        """Add a link, and return NONE or the error for which it is refused.

        Links of an older process of the node end, as does the oldest one when there are too many: a peer whose side of
        a half-open connection is gone connects again.
        """
        if peer.node_id == self._node_id:
            return PushErrorCode.INVALID_REQUEST
        links = self._links.setdefault(peer.node_id, {})
        if any(epoch > peer.process_epoch for epoch in links.values()):
            return PushErrorCode.STALE_BROKER_EPOCH
        older = [each for each, epoch in links.items() if epoch < peer.process_epoch]
        surplus = len(links) - len(older) + 1 - self._links_per_node
        rest = [each for each in links if each not in older]
        for each in [*older, *rest[: max(surplus, 0)]]:
            del links[each]
            each.abort()
        links[link] = peer.process_epoch
        return PushErrorCode.NONE

    def remove(self, link: EndableLink, peer: PeerIdentity) -> None:
        """Forget a link; a link that is not there does nothing."""
        links = self._links.get(peer.node_id, {})
        links.pop(link, None)
        if not links:
            self._links.pop(peer.node_id, None)
