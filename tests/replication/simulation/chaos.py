"""Chaos: what happens in a story: appends, faults of links, deaths, pauses, elections, truncations, cleaning."""

from collections.abc import Callable
from functools import partial

from tests.replication.simulation.controller import Controller, PartitionRecord
from tests.replication.simulation.network import NetworkFaults, SimulatedNetwork
from tests.replication.simulation.node import SimulatedNode
from tests.replication.simulation.simulated_log import SimulatedLeaderLog
from tests.replication.simulation.world import SimulatedWorld

_STEPS = 30
_KEYS = 4
_WAITS_S = (0.0, 0.0005, 0.002, 0.01, 0.05, 0.3, 1.2, 5.0)
_WAIT_WEIGHTS = (3, 5, 5, 4, 3, 2, 2, 0.7)
DELETE_RETENTION_S = 12.0


class Chaos:
    """The steps of a story. Everything is drawn from the world's chance."""

    def __init__(
        self, world: SimulatedWorld, network: SimulatedNetwork, controller: Controller, *, is_compacted: bool
    ) -> None:
        self._world = world
        self._network = network
        self._controller = controller
        self._nodes = controller.nodes
        self._is_compacted = is_compacted
        self._steps: dict[Callable[[], None], float] = {
            self._append: 30,
            self._append_burst: 6,
            self._change_network: 5,
            self._cut: 4,
            self._heal: 5,
            self._kill: 5,
            self._lose_power: 3,
            self._boot: 10,
            self._pause: 4,
            self._resume: 7,
            self._elect: 4,
            self._flush: 5,
            self._delete_records: 3,
            self._clean: 6 if is_compacted else 0,
            self._truncate: 0 if controller.is_owned else 4,
            self._raise_watermark: 0 if controller.is_owned else 6,
            self._throttle: 2,
            self._switch_push: 1.5,
            self._corrupt_read: 2,
            self._close_files: 2,
        }

    def play(self) -> None:
        """Take steps, and let time pass between them."""
        rng = self._world.rng
        steps, weights = list(self._steps), list(self._steps.values())
        self._world.run_until(self._world.now_s + 0.1)
        for step in rng.choices(steps, weights, k=_STEPS):
            step()
            wait_s = rng.choices(_WAITS_S, _WAIT_WEIGHTS)[0]
            self._world.run_until(self._world.now_s + wait_s * (0.5 + rng.random()))

    def mend(self) -> None:
        """Undo all faults, and have every partition led."""
        self._network.heal()
        for node in self._nodes.values():
            if not node.is_alive:
                self._boot_node(node)
            elif node.is_paused:
                self._world.resume(node)
            self._world.take_turn(node, partial(node.keeper.enable_push, is_enabled=True))
            for replicator in node.led.replicators():
                for replica_id in replicator.replica_ids:
                    replicator.throttle(replica_id, is_throttled=False)
            for log in node.led_logs.values():
                log.has_open_files, log.is_corrupt_once = True, False

    # Records

    def _append(self) -> None:
        record, rng = self._partition(), self._world.rng
        self._append_to(record, rng.randint(1, 2), size=rng.choice((80, 150, 300)))

    def _append_burst(self) -> None:
        record, rng = self._partition(), self._world.rng
        self._append_to(record, rng.randint(3, 8), size=rng.choice((150, 500, 1200)))

    def _append_to(self, record: PartitionRecord, count: int, *, size: int) -> None:
        """Have the leader append; the zombie of an older epoch may do so too."""
        rng = self._world.rng
        leading = [node for node in self._running() if record.partition in node.led_logs]
        if not leading:
            if not self._controller.is_owned:
                self._append_at_broker(record, count, size=size)
            return
        node = rng.choice(leading)
        log = node.led_logs[record.partition]
        for _ in range(count):
            key, is_tombstone, records = rng.randrange(_KEYS), rng.random() < 0.2, rng.randint(1, 3)

            def append(key: int = key, records: int = records, is_tombstone: bool = is_tombstone) -> None:
                batch = log.append(count=records, key=key, is_tombstone=is_tombstone, size=size)
                self._trace(f"node {node.node_id} appends batch {batch.uid} at {batch.base_offset}")

            if node.led_logs.get(record.partition) is log:
                self._world.take_turn(node, append)

    def _append_at_broker(self, record: PartitionRecord, count: int, *, size: int) -> None:
        """Append while the daemon beside the broker does not run."""
        rng, node = self._world.rng, self._nodes[record.leader_id]
        if node.is_alive or node.node_id in self._controller.lost:
            return
        for _ in range(count):
            key, is_tombstone = rng.randrange(_KEYS), rng.random() < 0.2
            node.disk.log(record.partition).append_new(
                count=1, epoch=record.leader_epoch, key=key, is_tombstone=is_tombstone, size=size
            )
        self._trace(f"the broker of node {node.node_id} appends {count} batches")

    def _grow_again(self, record: PartitionRecord, node: SimulatedNode) -> None:
        """Have the leader write over what it has lost, before any standby can ask it."""
        rng, log = self._world.rng, node.disk.log(record.partition)
        for _ in range(rng.randint(0, 6)):
            log.append_new(
                count=rng.randint(1, 3),
                epoch=record.leader_epoch,
                key=rng.randrange(_KEYS),
                is_tombstone=False,
                size=80,
            )
        self._trace(f"partition {record.partition.partition} of node {node.node_id} grows to {log.log_end_offset}")

    def _raise_watermark(self) -> None:
        """Have a broker raise its watermark (tail mode)."""
        led = self._led(self._partition())
        if led is not None:
            node, log = led
            offset = log.log.batch_end_at_or_above(self._world.rng.randint(log.high_watermark, log.log_end_offset))
            if offset > log.high_watermark:
                self._world.take_turn(node, lambda: log.raise_high_watermark(offset))

    def _delete_records(self) -> None:
        led = self._led(self._partition())
        if led is not None and led[1].high_watermark > led[1].log_start_offset:
            node, log = led
            offset = self._world.rng.randint(log.log_start_offset + 1, log.high_watermark)
            self._trace(f"node {node.node_id} deletes the records below {offset}")
            self._world.take_turn(node, lambda: log.raise_log_start(offset))

    def _clean(self) -> None:
        """Have the cleaner of a node work."""
        node = self._any_running()
        if node is None:
            return
        for partition, log in node.disk.logs.items():
            self._trace(f"node {node.node_id} cleans partition {partition.partition} below {log.high_watermark}")
            log.clean(now_s=self._world.now_s, delete_retention_s=DELETE_RETENTION_S)

    def _truncate(self) -> None:
        """Have a broker lose its end to another one, and lead again (tail mode)."""
        record = self._partition()
        led = self._led(record)
        if led is not None and led[1].log.batches:
            node, log = led
            bases = [each.base_offset for each in log.log.batches][-4:]
            offset = max(self._world.rng.choice(bases), log.log_start_offset)
            if self._world.rng.random() < 0.4:
                record.lossy_epochs.add(record.leader_epoch)
                self._trace(f"the broker of node {node.node_id} loses what is behind {offset}, and keeps its epoch")
                grow = partial(self._grow_again, record, node)
                self._world.take_turn(node, lambda: log.lose_and_grow(offset, grow))
                return
            record.leader_epoch += 1
            self._trace(f"the broker of node {node.node_id} truncates to {offset}, epoch {record.leader_epoch}")
            self._world.take_turn(node, lambda: log.truncate(offset, leader_epoch=record.leader_epoch))

    # Network

    def _change_network(self) -> None:
        rng = self._world.rng
        self._network.faults = NetworkFaults(
            longest_delay_s=rng.choice((0.002, 0.02, 0.3)),
            breaks=rng.choice((0.0, 0.05, 0.2)),
            is_silent=rng.choice((0.1, 0.5)),
            duplicates=rng.choice((0.0, 0.2)),
            corrupts=rng.choice((0.0, 0.0, 0.1)),
        )
        self._trace(f"{self._network.faults}")

    def _cut(self) -> None:
        if len(self._nodes) > 1:
            one, other = self._world.rng.sample(sorted(self._nodes), 2)
            self._trace(f"the link of {one} and {other} is cut")
            self._network.cut(one, other)

    def _heal(self) -> None:
        self._trace("the links are mended")
        self._network.heal()

    # Processes

    def _kill(self) -> None:
        node = self._any_running()
        if node is not None:
            self._trace(f"node {node.node_id}: the process dies")
            node.die(is_silent=False)

    def _lose_power(self) -> None:
        node, rng = self._any_running(), self._world.rng
        if node is None:
            return
        self._trace(f"node {node.node_id}: the host dies")
        node.die(is_silent=True)
        has_lost = False
        for partition, log in node.disk.logs.items():
            kept = rng.randint(min(log.flushed_offset, log.log_end_offset), log.log_end_offset)
            before = log.log_end_offset
            log.lose_tail(kept)
            has_lost |= log.log_end_offset < before
            self._trace(f"node {node.node_id}: partition {partition.partition} ends at {log.log_end_offset}")
        if has_lost:
            node.process_epoch += 1
            self._controller.on_host_loss(node)

    def _boot(self) -> None:
        dead = [node for node in self._nodes.values() if not node.is_alive]
        if dead:
            self._boot_node(self._world.rng.choice(dead))

    def _boot_node(self, node: SimulatedNode) -> None:
        """Begin a process; it leads what it has led, at times in another epoch if its host has lost records."""
        self._trace(f"node {node.node_id} begins, process epoch {node.process_epoch + 1}")
        node.boot()
        had_loss = node.node_id in self._controller.lost
        self._controller.lost.discard(node.node_id)
        for record in self._controller.records.values():
            if record.leader_id == node.node_id and had_loss and self._world.rng.random() < 0.6:
                self._grow_again(record, node)
                self._controller.go_on(record, node)
            elif record.leader_id == node.node_id and had_loss:
                record.in_sync = set()
                self._controller.begin_epoch(record, node, is_clean=False)
            elif record.leader_id == node.node_id:
                self._controller.lead(record, node)

    def _pause(self) -> None:
        node = self._any_running()
        if node is not None:
            self._trace(f"node {node.node_id} is stopped (SIGSTOP)")
            node.is_paused = True

    def _resume(self) -> None:
        paused = [node for node in self._nodes.values() if node.is_paused]
        if paused:
            node = self._world.rng.choice(paused)
            self._trace(f"node {node.node_id} goes on (SIGCONT)")
            self._world.resume(node)

    def _elect(self) -> None:
        """Move the leadership of a partition: to a replica in sync, if there is one and chance has it."""
        record, rng = self._partition(), self._world.rng
        candidates = [node for node in self._running() if node.node_id in self._controller.leader_ids]
        clean = [node for node in candidates if self._controller.is_in_sync(record, node)]
        if clean and rng.random() < 0.9:
            self._controller.elect(record, rng.choice(clean))
        elif candidates and rng.random() < 0.3:
            self._controller.elect(record, rng.choice(candidates))

    def _flush(self) -> None:
        """Have a node flush its logs, and write its checkpoints."""
        node = self._any_running()
        if node is not None:
            for log in node.disk.logs.values():
                log.flushed_offset, log.checkpointed_watermark = log.log_end_offset, log.high_watermark

    # Orders of operators

    def _throttle(self) -> None:
        record, rng = self._partition(), self._world.rng
        node = self._controller.leader_of(record)
        if node is not None:
            replicator = node.led.find(record.partition.topic_id, record.partition.partition)
            assert replicator is not None
            replica_id, is_throttled = rng.choice(replicator.replica_ids), rng.random() < 0.4
            self._trace(f"replica {replica_id} is throttled: {is_throttled}")
            self._world.take_turn(node, lambda: replicator.throttle(replica_id, is_throttled=is_throttled))

    def _switch_push(self) -> None:
        node, is_enabled = self._any_running(), self._world.rng.random() < 0.6
        if node is not None:
            self._trace(f"push at node {node.node_id}: {is_enabled}")
            self._world.take_turn(node, lambda: node.keeper.enable_push(is_enabled))

    def _corrupt_read(self) -> None:
        led = self._led(self._partition())
        if led is not None:
            led[1].is_corrupt_once = True

    def _close_files(self) -> None:
        led = self._led(self._partition())
        if led is not None:
            led[1].has_open_files = not led[1].has_open_files

    # Parts

    def _partition(self) -> PartitionRecord:
        return self._world.rng.choice(list(self._controller.records.values()))

    def _led(self, record: PartitionRecord) -> tuple[SimulatedNode, SimulatedLeaderLog] | None:
        node = self._controller.leader_of(record)
        return None if node is None else (node, node.led_logs[record.partition])

    def _running(self) -> list[SimulatedNode]:
        return [node for node in self._nodes.values() if node.is_running]

    def _any_running(self) -> SimulatedNode | None:
        running = self._running()
        return self._world.rng.choice(running) if running else None

    def _trace(self, text: str) -> None:
        if self._world.is_traced:
            self._world.trace(f"* {text}")
