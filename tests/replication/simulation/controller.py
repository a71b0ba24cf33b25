"""Controller: the oracle of leader epochs, which also knows what must not be lost.

**Acknowledged below the watermark.** A record of an owned log is acknowledged when the log's present leader raises its
high watermark above it. The watermark waits for the in-sync replicas: those that the leader has found in sync, and the
replicas of before for as long as a leader that has just begun cannot know better (see ``ReplicaSet``). So the in-sync
replicas are kept here across the processes and the leaderships of a partition, and:

- at every rise of the watermark each in-sync replica has the records below it;
- a clean election takes an in-sync replica, and it has every record that was ever acknowledged;
- an unclean election, or a leader whose host has lost records, may lose what it lost; from then on what the new leader
  has below its watermark is acknowledged.

A replica whose host lost records is not in sync until the leader has heard of its new process; one that began its copy
of a compacted log again is not in sync until the leader knows that.

**Lost within an epoch.** A host that loses records may lead again in the same epoch, and write other records at the
offsets of the lost ones before any standby hears of it: leader epochs and end offsets do not show that.
"""

from dataclasses import dataclass, field

from tests.replication.simulation.history import NO_BATCH, History
from tests.replication.simulation.node import SimulatedNode
from tests.replication.simulation.simulated_log import SimulatedLog
from tests.replication.simulation.world import SimulatedWorld
from tierd.model import TopicIdPartition
from tierd.replication.follower.rules.followed_partition import LeaderClaim
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.model.push_session import PeerNode


@dataclass
class PartitionRecord:
    """State of a partition at the controller.

    Attributes:
        leader_id: node that leads, or will when it runs again.
        in_sync: replicas that the watermark waits for, without the leader.
        lossy_epochs: epochs in which the leader lost records, and went on.
        acked_offset: exclusive end of what is acknowledged.
        acked_tip: uid of the last acknowledged batch.
        highest_watermark: of all leaders.
        keys: compacted topics: what each key was below the acknowledged offset.
    """

    partition: TopicIdPartition
    history: History
    leader_id: int
    leader_epoch: int = 0
    in_sync: set[int] = field(default_factory=set)
    lossy_epochs: set[int] = field(default_factory=set)
    acked_offset: int = 0
    acked_tip: int = NO_BATCH
    highest_watermark: int = 0

    @property
    def claim(self) -> LeaderClaim:
        return LeaderClaim(self.leader_id, self.leader_epoch)


class Controller:
    """Controller of all partitions.

    Attributes:
        violations: broken promises; kept because the code under test guards some callbacks against errors.
        lost: nodes whose host has lost records, until their next process begins.
    """

    def __init__(self, world: SimulatedWorld, *, is_owned: bool, is_compacted: bool, min_in_sync: int) -> None:
        self.nodes: dict[int, SimulatedNode] = {}
        self.records: dict[TopicIdPartition, PartitionRecord] = {}
        self.leader_ids: tuple[int, ...] = ()
        self.violations: list[str] = []
        self.lost: set[int] = set()
        self.is_owned = is_owned
        self._world = world
        self._is_compacted = is_compacted
        self._min_in_sync = min_in_sync

    def history(self, partition: TopicIdPartition) -> History:
        return self.records[partition].history

    def standbys_of(self, leader_id: int) -> list[PeerNode]:
        """Return the replicas to which a leader sends."""
        return [
            PeerNode(node_id, f"host{node_id}", 9406)
            for node_id in self.nodes
            if node_id != leader_id and (self.is_owned or node_id not in self.leader_ids)
        ]

    def leader_of(self, record: PartitionRecord) -> SimulatedNode | None:
        """Return the node that leads a partition; None while it is dead, paused or has not begun to."""
        node = self.nodes[record.leader_id]
        led = node.led_logs.get(record.partition) if node.is_running else None
        return node if led is not None and led.leader_epoch == record.leader_epoch else None

    # Elections

    def is_in_sync(self, record: PartitionRecord, node: SimulatedNode) -> bool:
        """Return True if the election of a node is clean, as far as its leader can know."""
        return node.node_id in record.in_sync and not node.disk.log(record.partition).is_begun_again

    def elect(self, record: PartitionRecord, node: SimulatedNode) -> None:
        """Make a node lead in the next epoch."""
        before = self.nodes[record.leader_id]
        is_clean = node is before or self.is_in_sync(record, node)
        if not self.is_owned:
            self._copy_broker_log(record, before, node)
        record.in_sync = (record.in_sync | {before.node_id}) - self.lost if is_clean else set()
        self.begin_epoch(record, node, is_clean=is_clean)
        if before is not node:
            delay_s = self._world.rng.choice((0.005, 0.2, 3.0))
            self._world.after(delay_s, before, lambda: self._depose(before, record))

    def begin_epoch(self, record: PartitionRecord, node: SimulatedNode, *, is_clean: bool) -> None:
        """Begin an epoch at a node."""
        record.leader_id, record.leader_epoch = node.node_id, record.leader_epoch + 1
        record.in_sync.discard(node.node_id)
        self._world.trace(
            f"node {node.node_id} leads partition {record.partition.partition} in epoch {record.leader_epoch}, "
            f"{'clean' if is_clean else 'unclean'}, in sync: {sorted(record.in_sync)}"
        )
        log = node.disk.log(record.partition)
        if self.is_owned and is_clean:
            self.check_kept(record, log, f"node {node.node_id}, a clean leader,")
        elif self.is_owned:
            self.acknowledge(record, log)
        self.lead(record, node)

    def go_on(self, record: PartitionRecord, node: SimulatedNode) -> None:
        """Have a node go on in the same epoch, whose host has lost records."""
        record.in_sync = set()
        record.lossy_epochs.add(record.leader_epoch)
        self._world.trace(f"node {node.node_id} goes on in epoch {record.leader_epoch}")
        if self.is_owned:
            self.acknowledge(record, node.disk.log(record.partition))
        self.lead(record, node)

    def lead(self, record: PartitionRecord, node: SimulatedNode) -> None:
        """Have a node lead in the present epoch."""
        nodes = self.standbys_of(node.node_id)
        self._world.take_turn(node, lambda: node.lead(record.partition, leader_epoch=record.leader_epoch, nodes=nodes))

    def on_doubt(self, node: SimulatedNode, partition: TopicIdPartition) -> None:
        """Answer a leader that asks if it still leads."""
        record, rng = self.records[partition], self._world.rng

        def answer() -> None:
            if record.leader_id != node.node_id:
                node.resign(partition)
            elif partition in node.led_logs:
                node.led.confirm_leadership(partition)

        self._world.after(rng.random(), node, answer)

    def on_host_loss(self, node: SimulatedNode) -> None:
        """Take note that the host of a node lost records."""
        self.lost.add(node.node_id)
        for record in self.records.values():
            record.in_sync.discard(node.node_id)

    # Promises

    def observe(self, record: PartitionRecord) -> None:
        """Take note of the replicas in sync, after a turn of the leader."""
        node = self.leader_of(record)
        replicator = None if node is None else node.led.find(record.partition.topic_id, record.partition.partition)
        if replicator is not None:
            self._note_in_sync(record, replicator)

    def on_watermark(self, node: SimulatedNode, partition: TopicIdPartition) -> None:
        """Compare a rise of a watermark with the replicas' logs."""
        record, log = self.records[partition], node.disk.log(partition)
        record.highest_watermark = max(record.highest_watermark, log.high_watermark)
        replicator = node.led.find(partition.topic_id, partition.partition)
        if not self.is_owned or self.leader_of(record) is not node or replicator is None:
            return
        self._note_in_sync(record, replicator)
        count = 1 + len(replicator.in_sync_ids)
        if count < self._min_in_sync:
            self.violations.append(f"the watermark rises with {count} replicas in sync")
        self.acknowledge(record, log)
        for replica_id in record.in_sync:
            copy = self.nodes[replica_id].disk.log(partition)
            self.check_kept(record, copy, f"replica {replica_id}, in sync,")

    def acknowledge(self, record: PartitionRecord, log: SimulatedLog) -> None:
        """Count what a log has below its watermark as acknowledged."""
        record.acked_offset = log.high_watermark
        below = [each for each in log.known() if each.base_offset < log.high_watermark]
        record.acked_tip = below[-1].uid if below else NO_BATCH

    def check_kept(self, record: PartitionRecord, log: SimulatedLog, subject: str) -> None:
        """Check that a log has everything that is acknowledged."""
        if log.log_end_offset < record.acked_offset:
            self.violations.append(f"{subject} ends at {log.log_end_offset}, and {record.acked_offset} is acknowledged")
        elif record.acked_tip != NO_BATCH and log.batches:
            tip = record.history[record.acked_tip]
            is_there = self._is_compacted or log.log_start_offset >= tip.next_offset
            if not is_there and not record.history.is_on_path(record.acked_tip, log.tip):
                self.violations.append(f"{subject} does not have the acknowledged batch {record.acked_tip}")

    # Parts

    def _note_in_sync(self, record: PartitionRecord, replicator: PartitionReplicator) -> None:
        found, now_s = set(), self._world.now_s
        for progress in replicator._replicas:
            replica_id = progress.node.node_id
            is_awaited = now_s < progress.awaited_until_s and not progress.is_throttled
            is_presumed = replica_id in record.in_sync and is_awaited
            is_known = progress.is_in_sync and progress.replica_epoch == self.nodes[replica_id].process_epoch
            copy = self.nodes[replica_id].disk.log(record.partition)
            copy.is_begun_again &= not (progress.is_in_sync and progress.log_end_offset <= copy.log_end_offset)
            is_in_sync = is_known or is_presumed or (progress.is_in_sync and replica_id in record.in_sync)
            if is_in_sync and not copy.is_begun_again:
                found.add(replica_id)
        if found != record.in_sync:
            self._world.trace(f"in sync of partition {record.partition.partition}: {sorted(found)}")
        record.in_sync = found

    def _depose(self, node: SimulatedNode, record: PartitionRecord) -> None:
        if record.leader_id != node.node_id:
            node.resign(record.partition)

    def _copy_broker_log(self, record: PartitionRecord, before: SimulatedNode, after: SimulatedNode) -> None:
        """Have the brokers replicate up to some batch: that is where the next leader's log ends."""
        old = before.disk.log(record.partition)
        keeps = self._world.rng.choice((0.5, 0.9, 1.0))
        end = old.batch_end_at_or_above(round(old.log_end_offset * keeps))
        if before is not after:
            after.disk.log(record.partition).copy_of(old, end)
