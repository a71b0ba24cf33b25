"""Calls of the callbacks of push sessions. One that raises ends its own session, and nothing else."""

from collections.abc import Callable
from typing import Final

import structlog

from tierd.replication.leader.pushing.push_actions import PushSessionEnded, RecordsAcknowledged
from tierd.replication.leader.pushing.push_router import PushRouter
from tierd.replication.model.push_session import PushSession

log = structlog.get_logger()

_MINUTE_S: Final = 60.0
_LINES_A_MINUTE: Final = 20


class SessionCallbacks:
    """Guard around the callbacks (push-replication 1.5)."""

    def __init__(self, router: PushRouter, now_s: Callable[[], float]) -> None:
        """End the sessions of ``router`` whose callbacks raise."""
        self._router = router
        self._now_s = now_s
        self._minute_began_s = now_s()
        self._lines = 0

    def acknowledge(self, action: RecordsAcknowledged) -> None:
        """Report an acknowledgement, and complete the requests that waited for it."""
        session = action.session
        try:
            is_higher = session.on_append_records_response(
                action.log_end_offset, action.log_start_offset, sent_at_s=action.sent_at_s
            )
            if is_higher:
                session.try_complete_delayed_requests()
        except Exception as error:  # noqa: BLE001  # a bug of one replicator must not stop the others
            self._note_failure(session, error)
            self._router.fail_session(session, self._now_s())

    def end(self, action: PushSessionEnded) -> None:
        """Report the end of a session."""
        identity = action.session.identity
        if self._may_write_line():
            log.info(
                "push_session_ended",
                partition=str(identity.partition),
                replica=identity.replica_id,
                session=identity.session_id,
                reason=action.reason.name,
            )
        try:
            action.session.on_push_session_ended(action.reason)
        except Exception as error:  # noqa: BLE001  # as above
            self._note_failure(action.session, error)

    def guard(self, call: Callable[[], None]) -> None:
        """Make a call that must not keep the rest from being done."""
        try:
            call()
        except Exception:  # a bug; the actions behind this one belong to other sessions
            self._router.counters.failed_callbacks += 1
            log.exception("push_callback_failed")

    def _may_write_line(self) -> bool:
        """Return True for the first ends of each minute: a peer that is lost ends thousands of sessions at once."""
        now_s = self._now_s()
        if now_s - self._minute_began_s >= _MINUTE_S:
            self._minute_began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= _LINES_A_MINUTE

    def _note_failure(self, session: PushSession, error: Exception) -> None:
        self._router.counters.failed_callbacks += 1
        identity = session.identity
        log.error(
            "push_callback_failed",
            partition=str(identity.partition),
            replica=identity.replica_id,
            exc_info=error,
        )
