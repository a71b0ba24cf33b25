"""Stories of a replicator over a real push router: one led log, standbys that fetch, peers that answer."""

from collections.abc import Iterable

from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tests.replication.leader.push_story import PushStory
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.leader.replicas.replicator_settings import ReplicatorHooks, ReplicatorSettings
from tierd.replication.model.messages import PartitionFetchResult, ReplicaFetch
from tierd.replication.model.push_session import PeerIdentity, PeerNode, PushSession, PushSessionEndReason


class RoutedPushes:
    """The ``PushSessions`` of a ``PushStory``: a push manager without a shell."""

    is_active = True

    def __init__(self, story: PushStory) -> None:
        self._story = story
        self.is_full = False
        self.not_caught_up = 0
        self.started: list[PushSession] = []
        self.ends: list[PushSessionEndReason] = []
        self._is_settling = False

    @property
    def has_room_for_sessions(self) -> bool:
        return not self.is_full

    def is_push_replication_supported(self, *, is_internal_topic: bool, is_cluster_link_destination: bool) -> bool:
        return self._story.settings.is_enabled and not is_internal_topic and not is_cluster_link_destination

    def record_follower_not_caught_up(self, partition: TopicIdPartition, replica_id: int) -> None:
        self.not_caught_up += 1

    def start_push(self, session: PushSession) -> None:
        self.started.append(session)
        self._story.router.start_push(session, self._story.now_s)
        self._settle()

    def on_leader_append(
        self,
        partition: TopicIdPartition,
        replica_ids: Iterable[int],
        append_offset: int,
        records: MemoryRecords | FileRecords,
        *,
        last_epoch: int = -1,
    ) -> None:
        self._story.router.on_leader_append(
            partition, replica_ids, append_offset, records, last_epoch=last_epoch, now_s=self._story.now_s
        )
        self._settle()

    def on_high_watermark_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], high_watermark: int
    ) -> None:
        self._story.router.on_high_watermark_update(partition, replica_ids, high_watermark, self._story.now_s)
        self._settle()

    def on_log_start_offset_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], log_start_offset: int
    ) -> None:
        self._story.router.on_log_start_offset_update(partition, replica_ids, log_start_offset, self._story.now_s)
        self._settle()

    def stop_push(self, partition: TopicIdPartition, replica_ids: Iterable[int], reason: PushSessionEndReason) -> None:
        self.ends.append(reason)
        self._story.router.stop_push(partition, replica_ids, reason, self._story.now_s)
        self._settle()

    def _settle(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._story.step()
            self._is_settling = False


class ReplicatorStory(PushStory):
    """One led log with standbys 1 and 2, both assigned."""

    def __init__(
        self, *, is_owned: bool = True, replicas: Iterable[int] = (1,), min_in_sync: int = 1, **settings: float
    ) -> None:
        super().__init__(**settings)
        self.log = MemoryLeaderLog()
        self.pushes = RoutedPushes(self)
        self.replicator = PartitionReplicator(
            self.log,
            self.pushes,
            ReplicatorSettings(
                transition_max_lag_bytes=self.settings.transition_max_lag_bytes,
                replica_lag_time_max_s=self.settings.replica_lag_time_max_s,
                min_in_sync_replicas=min_in_sync,
            ),
            ReplicatorHooks(raise_high_watermark=self.log.raise_high_watermark if is_owned else None),
            now_s=lambda: self.now_s,
        )
        self.replicator.assign([PeerNode(each, f"host{each}", 9406) for each in replicas])

    def fetch(
        self,
        offset: int,
        *,
        session_id: int = 0,
        replica: int = 1,
        last_epoch: int | None = None,
        leader_epoch: int | None = None,
        replica_epoch: int = 100,
    ) -> PartitionFetchResult | None:
        """Take a fetch of a standby; None if the standby may get records."""
        epoch = self.log.lineage.epoch_for(offset - 1) if last_epoch is None else last_epoch
        fetch = ReplicaFetch(
            topic_id=self.log.partition.topic_id,
            partition=self.log.partition.partition,
            current_leader_epoch=self.replicator.leader_epoch if leader_epoch is None else leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1 if epoch is None else epoch,
            log_start_offset=0,
            max_bytes=1 << 20,
            session_id=session_id,
        )
        return self.replicator.take_fetch(fetch, PeerIdentity(replica, replica_epoch))

    def promote(self, replica: int = 1, *, session_id: int = 0) -> None:
        """Have a standby that has everything fetch, and take the opening request of the session."""
        answer = self.fetch(self.log.log_end_offset, session_id=session_id, replica=replica)
        assert answer is not None
        assert answer.push_started
        self.answer_all()
