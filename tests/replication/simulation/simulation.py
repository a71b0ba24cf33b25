"""One story of push replication: daemons, a network and a controller, drawn from a seed; and the promises that hold.

The promises:

- **Prefix.** Every log is a path of the tree of all batches (``SimulatedLog``). A standby that has what its present
  leader sent ends inside its leader's log. At the end, every standby is the same as its leader by batches and epochs;
  below a cleaner point, by the latest record of each key.
- **Acknowledged.** ``Controller`` says what is acknowledged and when it may be lost.
- **Bounds.** Log start <= watermark <= log end in each log. A standby's watermark is never above every leader's.
- **Memory.** The budget counts what is held, is never exceeded, and is 0 at the end; a standby's intake is bounded.
- **Corruption.** One flipped bit costs no session: the bytes are read or sent again.
- **Sessions.** They begin a second apart and after their cooldown; no callback fails.
- **Rest.** With good links and all nodes up, all copies become complete.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tests.replication.simulation.chaos import DELETE_RETENTION_S, Chaos
from tests.replication.simulation.controller import Controller, PartitionRecord
from tests.replication.simulation.history import History
from tests.replication.simulation.network import SimulatedNetwork
from tests.replication.simulation.node import NodeDisk, NodeSettings, SimulatedNode
from tests.replication.simulation.observed_pushes import ObservedPushes
from tests.replication.simulation.simulated_log import SimulatedLog
from tests.replication.simulation.world import SimulatedWorld, Turned
from tierd.model import TopicIdPartition
from tierd.replication.follower.pull_fetcher import PullSettings
from tierd.replication.follower.rules.followed_partition import FollowerTimes
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings

_REST_S = 1.0
_MOST_RESTS = 120
_CLOSING_S = 2.5


class PushSimulationFailedError(Exception):
    """A promise was broken; the message says how to play the seed again."""

    def __init__(self, seed: int, error: BaseException) -> None:
        super().__init__(
            f"seed {seed}: {type(error).__name__}: {error}\n"
            f"play it again with its steps: python -m tests.replication.simulation --seed {seed}"
        )


class PushSimulation:
    """The story of one seed.

    Attributes:
        turns: turns of all processes.
        sessions: sessions that began.
        appends: batches that standbys took.
    """

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.world = SimulatedWorld(seed, trace)
        rng = self.world.rng
        leaders, standbys = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 2))
        self.is_owned = rng.random() < 0.75
        is_compacted = rng.random() < 0.25
        min_in_sync = rng.choice((1, 1, 2)) if self.is_owned else 1
        self.network = SimulatedNetwork(self.world, self._find, is_encoded=rng.random() < 0.2)
        self.controller = Controller(
            self.world, is_owned=self.is_owned, is_compacted=is_compacted, min_in_sync=min_in_sync
        )
        self.controller.leader_ids = tuple(range(1, leaders + 1))
        for number in range(rng.choice((1, 1, 2))):
            partition = TopicIdPartition(UUID(int=7 + number), f"topic{number}", number)
            record = PartitionRecord(partition, History(), leader_id=rng.choice(self.controller.leader_ids))
            self.controller.records[partition] = record
        settings = self._settings(is_compacted=is_compacted, min_in_sync=min_in_sync)
        for node_id in range(1, leaders + standbys + 1):
            self.controller.nodes[node_id] = SimulatedNode(
                node_id,
                self.world,
                self.network,
                NodeDisk(self.controller.history, is_compacted=is_compacted),
                settings,
                on_doubt=self.controller.on_doubt,
                on_watermark=self.controller.on_watermark,
            )
        self.chaos = Chaos(self.world, self.network, self.controller, is_compacted=is_compacted)
        self.world.check = self._check
        self.world.trace(
            f"{leaders} nodes that lead, {standbys} standbys, {len(self.controller.records)} partitions, "
            f"{'owned' if self.is_owned else 'tail mode'}, {'compacted' if is_compacted else 'deleted'}, "
            f"min in sync {min_in_sync}"
        )

    @property
    def sessions(self) -> int:
        return sum(each.sessions for each in self._pushes)

    @property
    def _pushes(self) -> list[ObservedPushes]:
        """Return the push managers of all processes, also of those that have died."""
        return [pushes for node in self._nodes for pushes in node.all_pushes]

    @property
    def appends(self) -> int:
        logs = (log for node in self._nodes for log in (*node.disk.logs.values(), *node.disk.aside))
        return sum(log.appends for log in logs)

    def run(self) -> None:
        """Play the story.

        Raises:
            AssertionError: a promise was broken.
        """
        for node in self._nodes:
            node.boot()
        for record in self.controller.records.values():
            node = self.controller.nodes[record.leader_id]
            record.leader_epoch += 1
            self.controller.lead(record, node)
        self.chaos.play()
        self._come_to_rest()
        self._close()

    # The end

    def _come_to_rest(self) -> None:
        """Mend everything, and wait until all copies are complete."""
        self.world.trace("everything is mended")
        self.chaos.mend()
        missing = ""
        for _ in range(_MOST_RESTS):
            self.world.run_until(self.world.now_s + _REST_S)
            missing = self._missing()
            if not missing:
                return
        raise AssertionError(f"no rest after {_REST_S * _MOST_RESTS:.0f} s: {missing}")

    def _missing(self) -> str:
        """Return what a copy lacks; empty when all are complete."""
        for record in self.controller.records.values():
            leader = self.controller.leader_of(record)
            if leader is None:
                return f"no leader of partition {record.partition.partition}"
            log = leader.disk.log(record.partition)
            if self.is_owned and log.high_watermark < log.log_end_offset:
                return f"the watermark of the leader is {log.high_watermark}, below {log.log_end_offset}"
            for peer in self.controller.standbys_of(leader.node_id):
                copy = self.controller.nodes[peer.node_id].disk.log(record.partition)
                if difference := _difference(log, copy):
                    return f"replica {peer.node_id}: {difference}"
        return ""

    def _close(self) -> None:
        """Stop all daemons: nothing is left."""
        self.world.trace("all daemons stop")
        for node in self._nodes:
            self.world.take_turn(node, node.close)
        self.world.run_until(self.world.now_s + _CLOSING_S)
        errors = sum(each.replication_errors for each in self._pushes)
        assert 2 * errors <= self.network.corruptions, f"{errors} sessions, {self.network.corruptions} flipped bits"
        for node in self._nodes:
            router = node.manager._router
            assert router.budget.used_bytes == 0, f"node {node.node_id}: {router.budget.used_bytes} bytes are left"
            assert not list(router.sessions()), f"node {node.node_id}: a session is left"
            assert all(pusher.is_idle for pusher in router.pushers), f"node {node.node_id}: a connection is left"
            assert node.intake.used_bytes == 0

    def dispose(self) -> None:
        """End all processes, also in the middle of a story."""
        for node in self._nodes:
            if node.is_alive:
                node.die(is_silent=True)

    # Promises at each moment

    def _check(self, turned: Turned) -> None:
        controller, node = self.controller, self.controller.nodes[turned.node_id]
        for record in controller.records.values():
            if record.leader_id == node.node_id:
                controller.observe(record)
            self._check_copy(record, node)
        node.pushes.check_memory(self.network.bytes_on_their_way(node))
        assert node.manager._router.counters.failed_callbacks == 0, f"a callback of node {node.node_id} failed"
        assert not controller.violations, controller.violations[0]

    def _check_copy(self, record: PartitionRecord, node: SimulatedNode) -> None:
        log = node.disk.logs.get(record.partition)
        if log is None:
            return
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, f"node {node.node_id}: bounds"
        assert log.high_watermark <= max(record.highest_watermark, log.log_start_offset), (
            f"node {node.node_id} has the watermark {log.high_watermark}, the leaders had {record.highest_watermark}"
        )
        followed = node.followed(record.partition)
        if followed is None or not followed.is_pushed or followed.leader != record.claim:
            return
        leader = self.controller.leader_of(record)
        if leader is None:
            return
        led, replicator = (
            leader.disk.log(record.partition),
            leader.led.find(record.partition.topic_id, record.partition.partition),
        )
        assert replicator is not None
        if (
            record.leader_epoch in record.lossy_epochs
            and followed.compared_version != replicator._leadership.log_version
        ):
            return  # the standby has yet to hear of the leader's process that goes on
        assert log.log_end_offset <= led.log_end_offset, f"node {node.node_id} has more than its leader"
        if not log.is_compacted and log.batches and led.batches and log.log_end_offset > led.log_start_offset:
            assert record.history.is_on_path(log.tip, led.tip), f"node {node.node_id} is no prefix of its leader"

    # Parts

    @property
    def _nodes(self) -> list[SimulatedNode]:
        return list(self.controller.nodes.values())

    def _find(self, node_id: int) -> SimulatedNode | None:
        return self.controller.nodes.get(node_id)

    def _settings(self, *, is_compacted: bool, min_in_sync: int) -> NodeSettings:
        rng = self.world.rng
        push = PushSettings(
            max_pushers=rng.choice((1, 2)),
            buffer_max_bytes=rng.choice((2400, 6000)),
            session_buffer_max_bytes=rng.choice((900, 2400)),
            request_max_bytes=1000,
            partition_max_bytes=600,
            file_chunk_bytes=400,
            batch_min_bytes=300,
            linger_s=rng.choice((0.0, 0.0, 0.002)),
            in_flight_per_peer=rng.choice((1, 1, 2)),
            request_timeout_s=2.0,
            session_unacked_max_s=4.0,
            keepalive_s=1.5,
            follower_idle_max_s=5.0,
            transition_max_lag_bytes=rng.choice((0, 600, 2000)),
            replica_lag_time_max_s=8.0,
        )
        replicator = ReplicatorSettings(
            transition_max_lag_bytes=push.transition_max_lag_bytes,
            replica_lag_time_max_s=push.replica_lag_time_max_s,
            min_in_sync_replicas=min_in_sync,
        )
        standby = StandbySettings(
            state_dir=Path("none"),
            max_memory_bytes=1500,
            times=FollowerTimes(idle_max_s=push.follower_idle_max_s, retry_s=0.5, shortest_absence_s=2.0),
            fetch=PullSettings(max_wait_s=1.0, timeout_s=2.0, partition_max_bytes=600, max_bytes=1000, idle_s=10.0),
            assignments_wait_s=20.0,
        )
        return NodeSettings(
            push,
            replicator,
            standby,
            leader_ids=self.controller.leader_ids,
            is_owned=self.is_owned,
            delete_retention_s=DELETE_RETENTION_S if is_compacted else None,
        )


def _difference(log: SimulatedLog, copy: SimulatedLog) -> str:
    """Return how a copy differs from its leader's log; empty for a complete copy."""
    if copy.log_end_offset != log.log_end_offset:
        return f"it ends at {copy.log_end_offset}, its leader at {log.log_end_offset}"
    if copy.high_watermark != log.high_watermark:
        return f"its watermark is {copy.high_watermark}, that of its leader {log.high_watermark}"
    start = max(copy.log_start_offset, log.log_start_offset)
    mine, theirs = copy.latest_by_key(copy.log_end_offset), log.latest_by_key(log.log_end_offset)
    if copy.is_compacted and start == 0 and mine != theirs:
        return f"its latest records are {mine}, those of its leader {theirs}"
    after = max(start, log.history.cleaned_offset)
    mine_after, theirs_after = (
        [each.uid for each in each_log.known() if each.base_offset >= after] for each_log in (copy, log)
    )
    return "" if mine_after == theirs_after else f"it has the batches {mine_after}, its leader {theirs_after}"


def run_push_seed(seed: int, trace: Callable[[str], None] | None = None) -> PushSimulation:
    """Play the story of a seed; return it.

    Raises:
        PushSimulationFailedError: a promise was broken.
    """
    simulation = PushSimulation(seed, trace)
    try:
        simulation.run()
    except Exception as error:
        raise PushSimulationFailedError(seed, error) from error
    finally:
        simulation.dispose()
    return simulation
