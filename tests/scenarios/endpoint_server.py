"""Real broker whose topics clients read through the endpoint of the daemon beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.golden_server import AGAINST_BROKER, endpoint_settings
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.services.kafka_cluster import KafkaBroker
from tests.services.ports import free_port


@dataclass(frozen=True, slots=True)
class EndpointServer:
    """Broker, daemon, and the address for clients.

    Attributes:
        daemon: None where clients read from the broker itself.
    """

    broker: KafkaBroker
    bootstrap: str
    tierd: Installation | None
    daemon: Daemon | None

    def restart(self) -> None:
        """End what clients are connected to without a farewell, and start it again at the same address."""
        if self.daemon is None:
            self.broker.kill(1)
            self.broker.start(1)
            return
        self.daemon.kill()
        self.daemon.start()
        self.daemon.wait_ready()


@contextmanager
def endpoint_server(
    broker: KafkaBroker,
    make_installation: MakeInstallation,
    *,
    remote: Settings | None = None,
    settings: Settings | None = None,
) -> Iterator[EndpointServer]:
    """Start the daemon, which learns watermarks from the broker by a Kafka connection."""
    if AGAINST_BROKER:
        yield EndpointServer(broker, broker.bootstrap, None, None)
        return
    port = free_port()
    leadership = {"leadership": {"kafka": {"bootstrap_servers": broker.bootstrap.split(",")}}}
    tierd = make_installation(
        broker.log_dirs, remote=remote, settings=endpoint_settings(port) | leadership | (settings or {})
    )
    with tierd.daemon() as daemon:
        yield EndpointServer(broker, f"127.0.0.1:{port}", tierd, daemon)
