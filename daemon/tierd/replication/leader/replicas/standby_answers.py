"""StandbyAnswers: answers of a led partition to the questions of its standbys (push-replication 2.12). Pure.

A standby in push mode gets no records: the request that began its session crossed the fetch.
"""

from typing import Final

from tierd.replication.leader.logs.leader_log import LeaderLog
from tierd.replication.leader.replicas.fetch_answers import (
    LedLogFacts,
    check_fetch,
    check_leader_epoch,
    epoch_end_offset,
    log_bounds,
)
from tierd.replication.leader.replicas.replica_set import ReplicaSet
from tierd.replication.leader.replicas.replicator_settings import PartitionLeadership
from tierd.replication.model.messages import (
    DivergingEpoch,
    EpochEndOffsetResult,
    EpochQuery,
    LogBoundsResult,
    PartitionFetchResult,
    RecordBytes,
    ReplicaFetch,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity
from tierd.replication.model.replication_state import UNKNOWN_SESSION_ID

_NO_ERROR: Final = PushErrorCode.NONE
_COMPARES_NOTHING: Final = -1


class StandbyAnswers:
    """Answers from the present state. They change nothing but the high watermark that a standby was told."""

    def __init__(self, log: LeaderLog, replicas: ReplicaSet, leadership: PartitionLeadership) -> None:
        """Answer about ``log``."""
        self._log = log
        self._replicas = replicas
        self._leadership = leadership

    def refuse_asker(self, peer: PeerIdentity, current_leader_epoch: int) -> PushErrorCode:
        """Return the reason for which a node gets no answer; only assigned standbys get one."""
        progress = self._replicas.get(peer.node_id)
        if progress is None:
            return PushErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not self._leadership.is_exercised:
            return PushErrorCode.NOT_LEADER_OR_FOLLOWER
        if peer.process_epoch < progress.replica_epoch:
            return PushErrorCode.STALE_BROKER_EPOCH
        return check_leader_epoch(current_leader_epoch, self._leadership.epoch)

    def without_records(self, fetch: ReplicaFetch, peer: PeerIdentity) -> PartitionFetchResult | None:
        """Return the answer to a fetch that gets no records; None if it may get some."""
        refused = self.refuse_asker(peer, fetch.current_leader_epoch)
        progress = self._replicas.get(peer.node_id)
        if progress is None or refused is not _NO_ERROR:
            return self.result(fetch, peer, refused)
        state = progress.state
        if fetch.session_id < state.session_id and (progress.is_pushed or fetch.session_id > UNKNOWN_SESSION_ID):
            return self.result(fetch, peer, PushErrorCode.STALE_REPLICATION_SESSION)
        if progress.is_pushed:
            return self.result(fetch, peer, push_started=True)
        refusal = check_fetch(fetch, self._facts())
        if isinstance(refusal, DivergingEpoch):
            return self.result(fetch, peer, diverging=refusal)
        if refusal is not None:
            return self.result(fetch, peer, refusal)
        has_to_compare = self._version_for(fetch) and not fetch.is_comparison
        return self.result(fetch, peer) if has_to_compare else None

    def has_news(self, peer: PeerIdentity) -> bool:
        """Return True if the standby does not know the present high watermark."""
        progress = self._replicas.get(peer.node_id)
        return progress is not None and self._log.high_watermark > progress.told_high_watermark

    def result(
        self,
        fetch: ReplicaFetch,
        peer: PeerIdentity,
        error: PushErrorCode = _NO_ERROR,
        *,
        diverging: DivergingEpoch | None = None,
        push_started: bool = False,
        records: RecordBytes = b"",
    ) -> PartitionFetchResult:
        """Return an answer to a fetch with the present offsets of the log; a refused node gets none of them."""
        progress, log = self._replicas.get(peer.node_id), self._log
        if progress is None or error not in (_NO_ERROR, PushErrorCode.OFFSET_OUT_OF_RANGE):
            return PartitionFetchResult(topic_id=fetch.topic_id, partition=fetch.partition, error_code=error)
        log_version = self._version_for(fetch)
        if error is _NO_ERROR and diverging is None and not log_version:  # with a version, the offsets do not count
            progress.told_high_watermark = log.high_watermark
        return PartitionFetchResult(
            topic_id=fetch.topic_id,
            partition=fetch.partition,
            error_code=error,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            diverging=diverging,
            session_id=progress.state.session_id,
            push_started=push_started,
            log_version=log_version,
            records=(records,) if len(records) else (),
        )

    def epoch_end_offset(self, query: EpochQuery, peer: PeerIdentity) -> EpochEndOffsetResult:
        """Answer the question for the end of an epoch."""
        refused = self.refuse_asker(peer, query.current_leader_epoch)
        if refused is not _NO_ERROR:
            return EpochEndOffsetResult(topic_id=query.topic_id, partition=query.partition, error_code=refused)
        return epoch_end_offset(query, self._facts())

    def log_bounds(self, query: EpochQuery, peer: PeerIdentity) -> LogBoundsResult:
        """Answer the question for start and end of the log."""
        refused = self.refuse_asker(peer, query.current_leader_epoch)
        if refused is not _NO_ERROR:
            return LogBoundsResult(topic_id=query.topic_id, partition=query.partition, error_code=refused)
        return log_bounds(query, self._facts())

    def _version_for(self, fetch: ReplicaFetch) -> int:
        """Return the version of the log if the follower compares, or is to compare; else 0."""
        version = self._leadership.log_version
        is_compared = fetch.compared_version in (_COMPARES_NOTHING, version)
        return 0 if is_compared and not fetch.is_comparison else version

    def _facts(self) -> LedLogFacts:
        log = self._log
        return LedLogFacts(log.log_start_offset, log.log_end_offset, log.lineage)
