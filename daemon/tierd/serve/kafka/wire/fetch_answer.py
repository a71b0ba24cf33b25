"""FetchAnswer: answer to a Fetch with its records beside it, which no encoder touches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kio.static.protocol import ResponsePayload

from tierd.serve.kafka.served.served_log import FileSlice

Pieces: TypeAlias = tuple[bytes | FileSlice, ...]
"""Bytes of one partition in order; some may be in a file."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """Answer to a Fetch of any version.

    Attributes:
        response: kio's response; the records of its partitions are empty (``b""``).
        records: records of partitions, by (index in ``responses``, index in ``partitions`` of that topic). A partition
            that is missing here is sent as ``response`` has it.
        waited_s: time that the answer waited for records to come, which does not make the request a slow one.
        counted_bytes: bytes that count against the quota of the client already.
    """

    response: ResponsePayload
    records: Mapping[tuple[int, int], Pieces]
    waited_s: float = 0.0
    counted_bytes: int = 0
