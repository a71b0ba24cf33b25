"""``AppendAnswers``: the consequences of answers to AppendRecords, and of answers that do not come (2.7, 2.8)."""

from typing import Final

from tierd.replication.leader.logs.record_memory import has_intact_checksums
from tierd.replication.leader.pushing.append_builder import SentAppend, SentPart
from tierd.replication.leader.pushing.append_reactions import (
    Acknowledge,
    EndSession,
    ResendIntact,
    Resynchronize,
    RetryLater,
    reaction_to,
)
from tierd.replication.leader.pushing.peer_lane import PeerLane
from tierd.replication.leader.pushing.push_actions import LeadershipDoubted, RecordsAcknowledged, ReleaseFile
from tierd.replication.leader.pushing.pusher_slots import MAX_THROTTLE_S, PusherSlots
from tierd.replication.leader.pushing.session_slot import AckOutcome, SessionSlot, SlotState
from tierd.replication.model.messages import AppendRecordsResponse, PartitionAppendResult
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason

NO_ANSWER: Final = -1
"""Key of ``PushCounters.retries`` for answers that did not come."""


class AppendAnswers:
    """Answers of the peers of one pusher."""

    def __init__(self, slots: PusherSlots) -> None:
        """Change ``slots``."""
        self._slots = slots

    def take(self, lane: PeerLane, sent: SentAppend, response: AppendRecordsResponse, now_s: float) -> None:
        """Take the answer to a request: each partition by itself."""
        counters = self._slots.shared.counters
        counters.request_latency_s.observe(now_s - sent.sent_at_s)
        if response.throttle_ms > 0:
            lane.throttled_until_s = now_s + min(response.throttle_ms / 1000, MAX_THROTTLE_S)
        self.release(sent)
        results = {(result.topic_id, result.partition): result for result in response.partitions}
        for part in sent.parts.values():
            part.slot.is_in_flight = False
        for key, part in sent.parts.items():
            result = results.get(key)
            code = response.error_code or (NO_ANSWER if result is None else result.error_code)
            if code == PushErrorCode.NONE:
                lane.failures = 0
            if part.slot.state is not SlotState.ENDED:
                self._take_part(part, code, result, sent.sent_at_s, now_s)
                self._slots.touch(part.slot, now_s)

    def lose(self, sent: SentAppend, now_s: float) -> None:
        """Take note that no answer will come: what was sent stays queued. The bytes are not released here."""
        self._slots.shared.counters.retries[NO_ANSWER] += 1
        for part in sent.parts.values():
            part.slot.is_in_flight = False
            if self._slots.is_shutting_down and part.slot.state is SlotState.STOPPING:
                self._slots.drop(part.slot, now_s)
            self._slots.touch(part.slot, now_s)

    def release(self, sent: SentAppend) -> None:
        """Let go of the bytes that a request kept for the transport."""
        for part in sent.parts.values():
            for ref in part.held:
                ref.release(part.slot.pusher)

    def _take_part(
        self, part: SentPart, code: int, result: PartitionAppendResult | None, sent_at_s: float, now_s: float
    ) -> None:
        slot, slots = part.slot, self._slots
        reaction = RetryLater() if code == NO_ANSWER else reaction_to(code)
        match reaction:
            case EndSession(reason, is_whole_peer=True):
                slots.shared.end_peer(slot.session.node.node_id, reason, now_s)
            case _ if part.is_end_signal:
                self._take_end_answer(slot, reaction, code, now_s)
            case _ if not slot.is_live:
                pass  # the session ended meanwhile, and its end goes out next
            case Acknowledge() if result is not None:
                self._acknowledge(part, result, sent_at_s, now_s)
            case Resynchronize() if result is not None:
                self._resynchronize(slot, result, now_s)
            case ResendIntact():
                self._resend_intact(part, now_s)
            case EndSession(reason):
                if reason is PushSessionEndReason.NEW_LEADER_EPOCH:
                    identity = slot.session.identity
                    slots.shared.actions.append(LeadershipDoubted(identity.partition, identity.leader_epoch))
                slots.end(slot, reason, now_s)
            case _:
                self._retry(slot, code, now_s, throttle_ms=0 if result is None else result.throttle_ms)

    def _take_end_answer(self, slot: SessionSlot, reaction: object, code: int, now_s: float) -> None:
        if isinstance(reaction, RetryLater) and not self._slots.is_shutting_down:
            self._retry(slot, code, now_s)
        else:  # taken; or the follower refused the session, which has ended for it then
            self._slots.drop(slot, now_s)

    def _acknowledge(self, part: SentPart, result: PartitionAppendResult, sent_at_s: float, now_s: float) -> None:
        slot, actions = part.slot, self._slots.shared.actions
        acked_before = slot.acked_offset
        if not self._accept(slot, result.log_end_offset, now_s):
            return
        if part.held and slot.acked_offset == acked_before:  # taken, yet not there
            self._retry(slot, result.error_code, now_s)
            return
        slot.high_watermark.confirm(part.high_watermark, now_s)
        slot.log_start_offset.confirm(part.log_start_offset, now_s)
        file = slot.note_success(now_s)
        if file is not None:
            actions.append(ReleaseFile(file))
        actions.append(
            RecordsAcknowledged(slot.session, result.log_end_offset, result.log_start_offset, sent_at_s=sent_at_s)
        )

    def _resynchronize(self, slot: SessionSlot, result: PartitionAppendResult, now_s: float) -> None:
        acked_before = slot.acked_offset
        if not self._accept(slot, result.log_end_offset, now_s):
            return
        self._slots.shared.counters.resyncs += 1
        if slot.acked_offset == acked_before:  # the follower has what was expected, and refused
            self._retry(slot, result.error_code, now_s)

    def _accept(self, slot: SessionSlot, log_end_offset: int, now_s: float) -> bool:
        outcome = slot.accept(log_end_offset, now_s)
        if outcome is AckOutcome.ABOVE:
            self._slots.end(slot, PushSessionEndReason.FOLLOWER_LOG_DIVERGED, now_s)
        elif outcome is AckOutcome.BELOW:
            self._slots.end(slot, PushSessionEndReason.FOLLOWER_OFFSET_GAP, now_s)
        return outcome is AckOutcome.TAKEN

    def _resend_intact(self, part: SentPart, now_s: float) -> None:
        slot = part.slot
        slot.corruptions += 1
        self._slots.shared.counters.retries[PushErrorCode.CORRUPT_MESSAGE] += 1
        is_first = slot.corruptions == 1
        is_read_again = is_first and slot.drop_chunk()
        if not is_read_again and not (is_first and all(has_intact_checksums(ref.data) for ref in part.held)):
            self._slots.end(slot, PushSessionEndReason.LEADER_REPLICATION_ERROR, now_s)

    def _retry(self, slot: SessionSlot, code: int, now_s: float, *, throttle_ms: int = 0) -> None:
        self._slots.shared.counters.retries[code] += 1
        self._slots.wait(slot, now_s, throttle_ms=throttle_ms)
