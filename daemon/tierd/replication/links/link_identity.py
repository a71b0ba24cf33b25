"""Identities of daemons: that of this process, and that of a peer's certificate (push-replication 3.5)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.model.messages import ApiVersions, HelloMessage, PushApi
from tierd.replication.wire.push_frames import VERSION

SOFTWARE_NAME: Final = "tierd"
_NODE_URI: Final = re.compile(r"tierd://([^/?#]{1,255})/(0|[1-9][0-9]{0,9})")


class NodeName(NamedTuple):
    """Cluster and id of a daemon."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        """Return the name as certificates have it."""
        return f"tierd://{self.cluster_id}/{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkIdentity:
    """This process, as its Hello names it."""

    cluster_id: str
    node_id: int
    process_epoch: int
    software_version: str

    @property
    def name(self) -> NodeName:
        """Return the name that this process's certificate has."""
        return NodeName(self.cluster_id, self.node_id)

    def hello(self, apis: Iterable[PushApi], *, error_code: int = 0) -> HelloMessage:
        """Return the Hello of a process that understands ``apis``."""
        return HelloMessage(
            error_code=error_code,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            process_epoch=self.process_epoch,
            software_name=SOFTWARE_NAME,
            software_version=self.software_version,
            apis=tuple(ApiVersions(api, VERSION, VERSION) for api in sorted({PushApi.HELLO, *apis})),
        )


def certified_name(certificate: Mapping[str, Any]) -> NodeName:
    """Return the node that a verified certificate names, given as ``ssl`` decodes it. The common name is not used.

    Raises:
        PushLinkError: it names no node, or several.
    """
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    found = {NodeName(match[1], int(match[2])) for uri in uris if (match := _NODE_URI.fullmatch(uri))}
    if len(found) != 1:
        named = ", ".join(sorted(map(str, found))) or "none"
        raise PushLinkError(
            f"the certificate of a daemon has to name one node, and this one names {named}",
            remedy="issue it with the URI tierd://CLUSTER-ID/NODE-ID as a subject alternative name",
        )
    return found.pop()
