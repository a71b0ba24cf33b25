"""Mosquitto for tests: its ports, the certificates of its daemons, and a broker that loses what it kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class MqttService:
    """Running Mosquitto. ``services`` can kill, freeze and restart it under the name ``mqtt``.

    Attributes:
        port: of the listener without TLS and without an access list.
        tls_port: of the listener with client certificates and the shipped access list.
    """

    port: int
    tls_port: int
    services: Services

    @classmethod
    def of(cls, settings: dict[str, str], services: Services) -> Self:
        """Return the service with these settings."""
        return cls(int(settings["TIERD_TEST_MQTT_PORT"]), int(settings["TIERD_TEST_MQTT_TLS_PORT"]), services)

    @property
    def address(self) -> str:
        """Return the address of the listener without TLS."""
        return f"127.0.0.1:{self.port}"

    @property
    def certificates(self) -> Path:
        """Return the folder of ``ca.pem``, ``NODE.pem`` and ``NODE-key.pem``; ``foreign`` has another authority's."""
        return self.services.root / "mqtt" / "certs"

    def restart(self, *, is_state_lost: bool = False) -> None:
        """Kill the broker and start it again; with ``is_state_lost`` it has no sessions and no retained messages."""
        self.services.kill("mqtt")
        if is_state_lost:
            (self.services.root / "mqtt" / "mosquitto.db").unlink(missing_ok=True)
        self.services.start("mqtt")
