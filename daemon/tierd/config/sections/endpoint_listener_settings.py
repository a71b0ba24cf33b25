"""Addresses of the read endpoint: its own listeners, and those of the other daemons of the cluster."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from tierd.config.places import PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.values import Address, HostPort, Text, WholeNumber, broker_address, split_address

_SHORT_FORM = re.compile(r"([A-Za-z_]+)://(.*)")
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
MAX_NODE_ID = (1 << 31) - 1


class EndpointListenerSettings(Settings):
    """One address at which clients connect. Kafka's short form does as well: PLAINTEXT://127.0.0.1:9192."""

    given_name: Text | None = Field(
        None,
        alias="name",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="name of the listener; default: its protocol in capitals",
    )
    protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext", description="security protocol; a listener without ssl stays on the loopback interface"
    )
    listen: Address = Field(description="address of the listener", examples=["127.0.0.1:9192"])
    advertised: HostPort | None = Field(
        None, description="address that clients are told; default: that of listen, with the port that is in use"
    )

    @classmethod
    def expanded(cls, value: object) -> object:
        """Return the keys that Kafka's short form stands for; any other value as it is."""
        found = _SHORT_FORM.fullmatch(value) if isinstance(value, str) else None
        return value if found is None else {"protocol": found[1].lower(), "listen": found[2]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return cls.expanded(value)

    @property
    def name(self) -> str:
        """Return the name of the listener."""
        return self.given_name or self.protocol.upper()

    @property
    def host(self) -> str:
        """Return the host part of ``listen``, without brackets."""
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        """Return the port of ``listen``; 0 lets the system choose."""
        return split_address(self.listen)[1]

    @property
    def is_tls(self) -> bool:
        """Return True if connections are encrypted."""
        return self.protocol.endswith("ssl")

    @property
    def has_login(self) -> bool:
        """Return True if clients log in."""
        return self.protocol.startswith("sasl")

    def advertised_address(self, bound_port: int) -> tuple[str, int]:
        """Return host and port that clients are told, for the port that the listener has."""
        return split_address(self.advertised) if self.advertised else (self.host, bound_port)

    @model_validator(mode="after")
    def _clients_know_the_way(self) -> "EndpointListenerSettings":
        if self.advertised is None and self.host in _EVERYWHERE:
            message = (
                f"{self.listen} is no address for clients: set advertised as well, such as tierd-1.example.com:9192"
            )
            raise PlacedFaultsError([(("listen",), message)])
        return self


def _addresses(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError("is no set of addresses: write the name of a listener and host:port, {SSL: tierd-2:9193}")  # noqa: TRY004 - as in values.py
    return {str(name): broker_address(address) for name, address in value.items()}


ListenerAddresses = Annotated[dict[str, str], BeforeValidator(_addresses)]


class EndpointPeerSettings(Settings):
    """Another daemon that serves the same cluster, with an address for each listener of this one."""

    node_id: WholeNumber = Field(ge=0, le=MAX_NODE_ID, description="node_id of its endpoint", examples=["2"])
    rack: Text | None = Field(None, min_length=1, description="rack of its host")
    address: HostPort | None = Field(None, description="address of its listener, where there is one listener only")
    listeners: ListenerAddresses = Field(
        {}, description="address of each of its listeners, by name, such as {PLAINTEXT: tierd-2.example.com:9192}"
    )

    def address_for(self, listener: str) -> tuple[str, int]:
        """Return host and port for the clients of a listener of that name."""
        written = self.address or self.listeners[listener]
        return split_address(written)

    @model_validator(mode="after")
    def _one_form_of_address(self) -> "EndpointPeerSettings":
        if (self.address is None) == (not self.listeners):
            message = "set address, or listeners with the address of each"
            raise PlacedFaultsError([(("address",) if self.address else ("node_id",), message)])
        return self
