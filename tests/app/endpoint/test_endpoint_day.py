"""One simulated day of an endpoint: clients of all kinds come and go, and leave nothing behind."""

import asyncio
import gc
from collections import Counter
from pathlib import Path

from structlog.testing import capture_logs

from tests.app.endpoint.day_visitors import DayVisitors
from tests.app.endpoint.test_endpoint_partitions import Setup, setup
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_targets
from tests.fakes.reachable_state import reachable_state
from tests.serve.kafka.access.clients import PASSWORD
from tests.tiering.setups import CLUSTER_ID, Recorded, delete_segment
from tierd.app.endpoint.build_endpoint import EndpointContext, build_endpoint
from tierd.app.endpoint.endpoint_watch import RequestMetrics
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.config import KafkaEndpointSettings
from tierd.metadata import MetadataKeyFactory
from tierd.telemetry import Metrics
from tierd.tiering import RateQuota

__all__ = ["setup"]

SETTINGS = {
    "listeners": [
        {"name": "OPEN", "protocol": "plaintext", "listen": "127.0.0.1:0"},
        {"name": "LOGIN", "protocol": "sasl_plaintext", "listen": "127.0.0.1:0"},
    ],
    "sasl": {
        "mechanisms": ["SCRAM-SHA-256"],
        "iterations": 4096,
        "users": [{"name": name, "password": PASSWORD} for name in ("etl", "greedy", "held")],
    },
    "access": [{"principals": [".*"], "topics": [".*"], "groups": [".*"]}],
    "quotas": [{"principals": ["User:greedy"], "requests_per_second": 1}],
    "quarantine": {"principals": ["User:held"]},
    "groups": {"offsets_retention": "1h", "initial_rebalance_delay": "0s"},
}
ROUND_S, STEP_S = 1800.0, 120.0
QUIET_S = 2 * 3600.0  # longer than any timeout, and the retention of commits


class Day:
    """A day at an endpoint that runs."""

    def __init__(self, setup: Setup, endpoint: ReadEndpoint) -> None:
        self.setup = setup
        self.endpoint = endpoint
        self.clock: ManualClock = setup.host.clock
        self.visitors = DayVisitors(endpoint, self.clock, setup.rows)
        self._round = 0

    async def busy(self, duration_s: float) -> None:
        """Let clients come and go."""
        end_s = self.clock.monotonic_s() + duration_s
        await self.visitors.play(self.visitors.move_in())
        while self.clock.monotonic_s() < end_s:
            self._round += 1
            await self.visitors.play(*self.visitors.stories(self._round))
            await self.visitors.play(self.visitors.unlucky(self._round))
            await self.passing(ROUND_S)

    async def quiet(self) -> None:
        """Let the last clients go, and everything that they left."""
        await self.passing(700.0)  # the deadline of idle connections
        await self.visitors.move_out()
        await self.passing(QUIET_S)
        server = self.endpoint.parts.server.statistics
        await eventually(lambda: not any(each.connections for each in server().listeners), what="the last ends")

    async def passing(self, duration_s: float) -> None:
        """Move the clock in steps, and let all tasks come to rest after each."""
        end_s = self.clock.monotonic_s() + duration_s
        while self.clock.monotonic_s() < end_s:
            self.clock.advance(STEP_S)
            for _ in range(5):
                await asyncio.sleep(0)
            await self.visitors.beat()

    async def state(self) -> Counter[str]:
        """Return the objects that the endpoint keeps, and the rows of the groups."""
        self.setup.rows.batches.clear()
        self._let_quotas_forget()
        rows = await self.setup.rows.inner.scan("")
        parts = self.endpoint.parts
        roots = (parts.access, parts.partitions, parts.server, parts.groups, parts.sessions)
        return reachable_state(roots, beside=(Recorded, ManualClock)) + Counter(rows=len(rows))

    def _let_quotas_forget(self) -> None:
        """Ask the quotas for their rates: a quota has its last windows until then, more or fewer on a busy machine."""
        for found in gc.get_objects():
            if isinstance(found, RateQuota):
                found.rate(self.clock.monotonic_s())


async def test_clients_of_a_day_leave_no_task_no_descriptor_and_no_growing_state(setup: Setup, tmp_path: Path) -> None:
    for base in (0, 8):
        delete_segment(setup.writers[1].path, base)  # read from the tier
    with capture_logs():
        endpoint = await build_endpoint(
            EndpointContext(
                settings=KafkaEndpointSettings.model_validate(SETTINGS),
                state_dir=tmp_path,
                rows=setup.rows,
                keys=MetadataKeyFactory(CLUSTER_ID),
                recorder=RequestMetrics(Metrics(version="1", clock=FakeClock())),
                clock=setup.host.clock,
                is_short=lambda: False,
                descriptors=65536,
            ),
            setup.partitions,
            None,
        )
        run = asyncio.create_task(endpoint.run(_loaded))
        await endpoint.wait_until_listening()
        day = Day(setup, endpoint)
        await day.busy(2 * 3600.0)
        await day.quiet()
        state, tasks, targets = await day.state(), _tasks(), len(open_targets())

        while day.clock.monotonic_s() < 24 * 3600.0:
            await day.busy(4.5 * 3600.0)
            await day.quiet()

        grown = await day.state() - state
        assert sum(grown.values()) == 0, grown
        assert _tasks() == tasks
        assert len(open_targets()) <= targets
        memory = endpoint.parts.server.statistics()
        assert (memory.request_bytes, memory.answer_bytes, memory.waiting_answers) == (0, 0, 0)
        endpoint.stop()
        await run
    assert endpoint.parts.sessions.statistics().evictions == 0


async def _loaded() -> None:
    return None


def _tasks() -> Counter[str]:
    return Counter(task.get_name().rstrip("0123456789") for task in asyncio.all_tasks())
