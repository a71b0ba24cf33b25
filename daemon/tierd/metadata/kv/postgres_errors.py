"""Translation of errors of PostgreSQL and of the connection to it."""

from typing import Final

import asyncpg

from tierd.errors import BackendUnavailableError, OutcomeUnknownError
from tierd.masking import Masking
from tierd.metadata.kv.refusals import NeedsPersonError, WritesRefusedError, failure_of

_RETRIED: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock: nothing was written, try again
_UNKNOWN: Final = frozenset({"40003", "57P01", "57P02", "57P05"})  # completion unknown; the session was ended
_REMEDIES: Final = {
    "25006": "this server takes no writes: point the dsn at the primary, or list every server in it",
    "28": "check user, password and pg_hba.conf; the dsn may also come from metadata.postgres.dsn_file",
    "3D": "create the database, or correct its name in metadata.postgres.dsn",
    "3F": "start tierd once with a user that may create it, or correct metadata.postgres.schema",
    "42501": "grant tierd's user CREATE on the database, or USAGE on the schema and ALL on its table kv",
    "42P01": "restore the table from a backup; tierd only makes it when it starts",
    "53100": "make room on the database's disk; tierd goes on by itself",
    "53300": "raise max_connections of the server, or lower metadata.postgres.pool_size",
    "55P03": "look in pg_locks for a session that holds tierd's rows; tierd tries again",
    "57014": "look at the database's load and in pg_locks; tierd tries again",
    "57P03": "the server is starting or stopping; tierd tries again",
}
_NO_WRITES: Final = frozenset({"25006", "53100"})  # no primary, or no room; reads are answered
_UNREACHABLE: Final = "check that the server runs and that its host and port in the dsn can be reached"


def is_answer(error: BaseException) -> bool:
    """Return True if the server itself refused the statement: nothing was written, the connection is still good."""
    if not isinstance(error, asyncpg.PostgresError):
        return False
    state = error.sqlstate or "08"
    return state[:2] != "08" and state[:3] != "57P" and state not in _UNKNOWN


def is_standby(error: BaseException) -> bool:
    """Return True if the server is read-only: a standby, or a primary that was demoted."""
    return getattr(error, "sqlstate", None) == "25006"


def is_retried(error: BaseException) -> bool:
    """Return True if another transaction was first, so that the same statement may succeed now."""
    return getattr(error, "sqlstate", None) in _RETRIED


def is_unknown(error: BaseException) -> bool:
    """Return True if a statement that ended with ``error`` may have been committed, or still may be."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or "08"
        return state.startswith("08") or state in _UNKNOWN
    return not isinstance(error, asyncpg.InterfaceError)  # which the client raises before anything is sent


def refused(name: str, masking: Masking, error: BaseException) -> BackendUnavailableError:
    """Return our error for a call that changed nothing; its cause is set, and masked."""
    state = getattr(error, "sqlstate", None) or ""
    kind = WritesRefusedError if state in _NO_WRITES else BackendUnavailableError
    if state[:2] in {"28", "3D", "3F", "42"} or _is_bad_address(error):
        kind = NeedsPersonError
    return failure_of(kind, name, masking, error, remedy=_remedy(error))


def unknown(name: str, masking: Masking, error: BaseException) -> OutcomeUnknownError:
    """Return our error for a batch whose answer was lost; its cause is set, and masked."""
    return failure_of(OutcomeUnknownError, name, masking, error, remedy=_UNREACHABLE)


def _is_bad_address(error: BaseException | None) -> bool:
    return isinstance(error, asyncpg.ClientConfigurationError | ValueError)


def _remedy(error: BaseException) -> str:
    if _is_bad_address(error):
        return "correct metadata.postgres.dsn, for example postgresql://user:password@host:5432/database"
    state = getattr(error, "sqlstate", None) or ""
    return _REMEDIES.get(state) or _REMEDIES.get(state[:2]) or _UNREACHABLE
