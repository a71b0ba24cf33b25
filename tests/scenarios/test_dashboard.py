"""Queries of the dashboard on a real Prometheus that scraped real daemons: each returns data; no alert is pending."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alerts.dashboard import queries
from tests.alerts.rule_files import ALERTS, RECORDING, shortened
from tests.fakes.log_dirs import CLUSTER_ID
from tests.scenarios.compaction_lab import CompactionLab
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.interrupted_tierd import command
from tests.scenarios.push_hosts import PushHosts
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_clients.librdkafka import read_partitions
from tests.services.ports import free_port
from tests.services.prometheus import PrometheusService
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("prometheus")

DATA_DEADLINE_S = 60.0


class BusyDaemons:
    """A leader with every part of tierd in use, and its standby; ``work`` makes some of each kind of work."""

    def __init__(self, root: Path, warm: WarmTierd) -> None:
        self._lab = CompactionLab(root / "leader", warm)
        self._port = free_port()
        hosts = PushHosts()
        self.leader = self._lab.tierd
        self.leader.configure(
            {**hosts.leader(), **endpoint_settings(self._port), "catalogue": {"interval": "1s"}},
        )
        settings = hosts.standby(root / "standby", CLUSTER_ID)
        self.standby = Installation(root / "standby-host", [], settings=settings, warm=warm)
        self.leading = self.leader.daemon(command=command(root / "spark"))

    @property
    def addresses(self) -> list[str]:
        return [self.leader.http, self.standby.http]

    def prepare(self) -> None:
        """Fill the tier, and prove it, before the daemons start."""
        self._lab.fill("orders", segments=4)
        for verb in (("copy", "--once"), ("drill", "--all")):
            ended = self.leader.ask(*verb)
            assert ended.exit_code == 0, ended.output

    def compact(self) -> None:
        """Have the tier compacted."""
        self._lab.let_local_go(self.leading)
        ended = self.leader.ask("compact", "--once")
        assert ended.exit_code == 0, ended.output

    def work(self) -> None:
        """Write a segment, and read all through the endpoint."""
        self._lab.fill("orders", segments=1)
        read_partitions(f"127.0.0.1:{self._port}", [("orders", 0)])


@pytest.fixture
def busy(tmp_path: Path, warm_tierd: WarmTierd) -> Iterator[BusyDaemons]:
    daemons = BusyDaemons(tmp_path, warm_tierd)
    daemons.prepare()
    with daemons.leading, daemons.standby.daemon() as standby:
        assert_pushed(standby)
        yield daemons


def assert_pushed(standby: Daemon) -> None:
    standby.wait_until(
        lambda: standby.metrics().get('tierd_push_partitions{state="push"}', 0) == 1, what="a session of the standby"
    )


def test_every_query_of_the_dashboard_returns_data(busy: BusyDaemons, prometheus_service: PrometheusService) -> None:
    prometheus_service.configure(
        rules={"recording.yaml": shortened(RECORDING.read_text()), "alerts.yaml": ALERTS.read_text()},
        targets=busy.addresses,
    )
    busy.compact()
    lacking = dict.fromkeys(queries())

    def has_all() -> bool:
        busy.work()
        for query in list(lacking):
            if has_data(prometheus_service, query[1]):
                del lacking[query]
        return not lacking

    wait_until(
        has_all,
        what="data of every query",
        deadline_s=DATA_DEADLINE_S,
        last_seen=lambda: list(lacking),
        interval_s=0.5,
    )
    assert prometheus_service.alerts() == [], "daemons that work have no alert, not even a pending one"


def has_data(prometheus: PrometheusService, expression: str) -> bool:
    """Return True if a query returns a number."""
    return any(sample["value"][1] != "NaN" for sample in prometheus.query(expression))
