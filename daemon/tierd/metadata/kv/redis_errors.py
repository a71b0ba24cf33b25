"""Translation of errors of Redis and of the connection to it."""

from typing import Final

from redis import exceptions

from tierd.errors import BackendUnavailableError, OutcomeUnknownError
from tierd.masking import Masking
from tierd.metadata.kv.refusals import NeedsPersonError, WritesRefusedError, failure_of

_UNREACHABLE: Final = "check that the server runs and that its host and port in the url can be reached"
_CREDENTIALS: Final = "correct user and password in metadata.redis.url, or the file that url_file names"
_FOR_A_PERSON: Final = frozenset({"WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "MOVED"})
_NO_WRITES: Final = frozenset({"READONLY", "NOREPLICAS", "OOM", "MISCONF"})  # reads are answered
_REMEDIES: Final = {
    "LOADING": "the server reads its data; tierd tries again",
    "READONLY": "this server is a replica: point metadata.redis.url at the primary; tierd tries again",
    "MASTERDOWN": "this server is a replica whose primary is gone: point metadata.redis.url at the primary",
    "NOREPLICAS": "bring the replicas back, or lower min-replicas-to-write; tierd tries again",
    "OOM": "raise maxmemory of the server and keep maxmemory-policy noeviction; tierd goes on by itself",
    "MISCONF": "make room on the server's disk; tierd goes on by itself",
    "BUSY": "another client's script blocks the server; tierd tries again",
    "NOAUTH": _CREDENTIALS,
    "WRONGPASS": _CREDENTIALS,
    "NOPERM": "let tierd's user run +@connection +@scripting +@sortedset +get +set +incrby +wait on ~{tierd}:*",
    "MOVED": "point metadata.redis.url at the node of the cluster that serves the hash tag {tierd}",
    "WRONGTYPE": "another program uses keys that begin with {tierd}: use a database of its own",
}


class ScriptMissingError(BackendUnavailableError):
    """Answer of a server that does not have the script of that name and must get its text."""


def is_refusal(error: BaseException) -> bool:
    """Return True if nothing was written, although the connection may be of no use any more."""
    return isinstance(
        error,
        exceptions.ResponseError
        | exceptions.BusyLoadingError
        | exceptions.AuthenticationError
        | exceptions.AuthorizationError,
    )


def is_demoted(error: BaseException) -> bool:
    """Return True if the server no longer serves writes of these keys: a replica now, or the keys have moved."""
    return isinstance(error, exceptions.ReadOnlyError | exceptions.MasterDownError | exceptions.MovedError)


def refused(name: str, masking: Masking, error: BaseException) -> BackendUnavailableError:
    """Return our error for a call that changed nothing; its cause is set, and masked."""
    kind = BackendUnavailableError
    if isinstance(error, exceptions.NoScriptError):
        kind = ScriptMissingError
    elif _needs_person(error):
        kind = NeedsPersonError
    elif _kind(error) in _NO_WRITES:
        kind = WritesRefusedError
    return failure_of(kind, name, masking, error, remedy=_remedy(error), is_late=_is_late(error))


def unknown(name: str, masking: Masking, error: BaseException) -> OutcomeUnknownError:
    """Return our error for a batch whose answer was lost; its cause is set, and masked."""
    return failure_of(OutcomeUnknownError, name, masking, error, remedy=_remedy(error), is_late=_is_late(error))


def _needs_person(error: BaseException) -> bool:
    wrong = exceptions.AuthenticationError | exceptions.AuthorizationError | ValueError
    return isinstance(error, wrong) or _kind(error) in _FOR_A_PERSON or _is_database(error)


def _is_late(error: BaseException) -> bool:
    return isinstance(error, exceptions.TimeoutError)


def _kind(error: BaseException) -> str:
    """Return the word with which the answer began; the client removes the words that it knows from the text."""
    known = {
        exceptions.BusyLoadingError: "LOADING",
        exceptions.ReadOnlyError: "READONLY",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.AuthenticationError: "WRONGPASS",
        exceptions.AuthenticationWrongNumberOfArgsError: "WRONGPASS",
        exceptions.NoPermissionError: "NOPERM",
        exceptions.MasterDownError: "MASTERDOWN",
        exceptions.MovedError: "MOVED",
    }
    if "user executing the script" in str(error):
        return "NOPERM"
    return next((kind for cls, kind in known.items() if isinstance(error, cls)), str(error).partition(" ")[0])


def _is_database(error: BaseException) -> bool:
    return "DB index is out of range" in str(error)


def _remedy(error: BaseException) -> str:
    if isinstance(error, ValueError):
        return "correct metadata.redis.url, for example rediss://user:password@host:6379/0"
    if _is_database(error):
        return "correct the number at the end of metadata.redis.url, or raise databases of the server"
    return _REMEDIES.get(_kind(error), _UNREACHABLE)
