"""Kafka's error codes for what fails inside tierd: one table for all requests.

A client must keep its position, try again, and show an error only where a person has to act. What clients do with a
code (Java 4.x, librdkafka 2.x, aiokafka, franz-go) decides which one is answered:

=====================  ==========================  ==========================  ==========================
trouble                Fetch                       ListOffsets                 OffsetForLeaderEpoch
=====================  ==========================  ==========================  ==========================
passing, standing      KAFKA_STORAGE_ERROR [1]_    LEADER_NOT_AVAILABLE        KAFKA_STORAGE_ERROR
too slow               KAFKA_STORAGE_ERROR [1]_    REQUEST_TIMED_OUT           KAFKA_STORAGE_ERROR
damaged                CORRUPT_MESSAGE             CORRUPT_MESSAGE             CORRUPT_MESSAGE
out of range, known    OFFSET_OUT_OF_RANGE         LEADER_NOT_AVAILABLE        KAFKA_STORAGE_ERROR
out of range, unknown  OFFSET_NOT_AVAILABLE [2]_   LEADER_NOT_AVAILABLE        KAFKA_STORAGE_ERROR
unknown partition      UNKNOWN_TOPIC_OR_PARTITION  UNKNOWN_TOPIC_OR_PARTITION  UNKNOWN_TOPIC_OR_PARTITION
a bug                  UNKNOWN_SERVER_ERROR        UNKNOWN_SERVER_ERROR        UNKNOWN_SERVER_ERROR
=====================  ==========================  ==========================  ==========================

.. [1] NOT_LEADER_OR_FOLLOWER before version 6, as a broker does; that is the code that those clients know.
.. [2] NOT_LEADER_OR_FOLLOWER before version 11, the first one whose clients know the code.

Requests of groups are answered COORDINATOR_NOT_AVAILABLE, or UNKNOWN_SERVER_ERROR for a bug: clients look for the
coordinator again and repeat the request.

- KAFKA_STORAGE_ERROR: consumers ask for metadata and fetch again from the same position; nothing is shown.
- LEADER_NOT_AVAILABLE: every client asks again after it in ListOffsets. It never answers a Fetch, where the Java
  consumer takes it for an illegal state and ends.
- CORRUPT_MESSAGE: Java raises from ``poll`` and stays at the position, librdkafka reports an error to the application
  and tries again, aiokafka warns and tries again. Damaged records are never passed over.
- OFFSET_OUT_OF_RANGE resets positions, so that it is answered only by a daemon that knows the log's bounds.
- UNKNOWN_SERVER_ERROR: Java warns and tries again; librdkafka reports it, and in ListOffsets falls back to the reset
  policy, as with a broker. The traceback is in the daemon's log.

Standing trouble (refused credentials, an encryption key or object that is missing) is retried as well: a person mends
it on the side of tierd, and consumers then go on where they were.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import structlog
from kio.schema.errors import ErrorCode

from tierd.errors import (
    BatchTooLargeError,
    CorruptIndexError,
    CorruptRecordError,
    DamagedLogError,
    OffsetOutOfRangeError,
    RemoteIntegrityError,
    TierError,
    UnknownPartitionError,
)

_log = structlog.get_logger(__name__)


class AskedFor(Enum):
    """Kind of request in the table above."""

    FETCH = auto()
    LIST_OFFSETS = auto()
    EPOCH_END = auto()
    GROUP = auto()


class _Trouble(Enum):
    PASSING = auto()  # and standing
    SLOW = auto()
    DAMAGED = auto()
    OUT_OF_RANGE = auto()
    UNKNOWN_PARTITION = auto()
    BUG = auto()


_FIRST_FETCH_WITH_STORAGE_ERROR: Final = 6  # KIP-112
_FIRST_FETCH_WITH_OFFSET_NOT_AVAILABLE: Final = 11  # KIP-392

_CODES: Final[Mapping[AskedFor, Mapping[_Trouble, ErrorCode]]] = {
    AskedFor.FETCH: {
        _Trouble.PASSING: ErrorCode.kafka_storage_error,
        _Trouble.SLOW: ErrorCode.kafka_storage_error,
        _Trouble.DAMAGED: ErrorCode.corrupt_message,
        _Trouble.OUT_OF_RANGE: ErrorCode.offset_out_of_range,
    },
    AskedFor.LIST_OFFSETS: {
        _Trouble.PASSING: ErrorCode.leader_not_available,
        _Trouble.SLOW: ErrorCode.request_timed_out,
        _Trouble.DAMAGED: ErrorCode.corrupt_message,
        _Trouble.OUT_OF_RANGE: ErrorCode.leader_not_available,
    },
    AskedFor.EPOCH_END: {
        _Trouble.PASSING: ErrorCode.kafka_storage_error,
        _Trouble.SLOW: ErrorCode.kafka_storage_error,
        _Trouble.DAMAGED: ErrorCode.corrupt_message,
        _Trouble.OUT_OF_RANGE: ErrorCode.kafka_storage_error,
    },
    AskedFor.GROUP: dict.fromkeys(_Trouble, ErrorCode.coordinator_not_available),
}
_FOR_ALL: Final = {
    _Trouble.UNKNOWN_PARTITION: ErrorCode.unknown_topic_or_partition,
    _Trouble.BUG: ErrorCode.unknown_server_error,
}


def error_code_for(error: Exception, asked_for: AskedFor, *, version: int) -> ErrorCode:
    """Return the code that a client is answered for ``error``, and log an error that is a bug, with its traceback.

    Args:
        error: as caught; a ``TimeoutError`` is the deadline of the request.
        asked_for: kind of request.
        version: of the request.
    """
    trouble = _trouble(error)
    if trouble is _Trouble.BUG:
        _log.error("kafka_request_failed", asked_for=asked_for.name.lower(), exc_info=error)
    code = _FOR_ALL.get(trouble) or _CODES[asked_for][trouble]
    return fetch_code_in_version(code, version) if asked_for is AskedFor.FETCH else code


def fetch_code_in_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return ``code``, or the nearest one that clients of this version of Fetch know."""
    if code is ErrorCode.kafka_storage_error and version < _FIRST_FETCH_WITH_STORAGE_ERROR:
        return ErrorCode.not_leader_or_follower
    if code is ErrorCode.offset_not_available and version < _FIRST_FETCH_WITH_OFFSET_NOT_AVAILABLE:
        return ErrorCode.not_leader_or_follower
    return code


def _trouble(error: Exception) -> _Trouble:
    match error:
        case TimeoutError():
            return _Trouble.SLOW
        case UnknownPartitionError():
            return _Trouble.UNKNOWN_PARTITION
        case OffsetOutOfRangeError():
            return _Trouble.OUT_OF_RANGE
        case BatchTooLargeError():  # intact, only too large for this daemon
            return _Trouble.PASSING
        case CorruptRecordError() | CorruptIndexError() | DamagedLogError() | RemoteIntegrityError():
            return _Trouble.DAMAGED
        case TierError():
            return _Trouble.PASSING
        case _:
            return _Trouble.BUG
