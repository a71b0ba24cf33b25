"""Records that a test sends to a real broker, and records as a real consumer gets them."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypedDict

from confluent_kafka import Message

_WORDS = ("tier", "broker", "Straße", "lease", "epoch", "ключ", "offset", "émoji🙂", "snapshot", "bucket")
_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


class ConsumedRecord(TypedDict):
    """Record in the form of ``records.jsonl.gz`` and of ``tierd cat --json``; bytes are base64."""

    offset: int
    timestamp: int
    timestampType: str
    leaderEpoch: int | None
    key: str | None
    value: str | None
    headers: list[list[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRecord:
    """Record as the input of a producer."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def random_records(random: Random, count: int, *, now_ms: int, value_bytes: int = 300) -> Iterator[SentRecord]:
    """Return records with null and empty keys and values, steps back in time, and special headers."""
    for _ in range(count):
        yield SentRecord(
            key=random.choice([None, b"", random.randbytes(8), b"key-%d" % random.randrange(50)]),
            value=_value(random, value_bytes),
            timestamp_ms=now_ms + random.randrange(-5_000, 100),
            headers=random.choice(
                [
                    (),
                    (),
                    (("trace", random.randbytes(6)),),
                    (("name", b"a"), ("name", b"b"), ("", b""), ("none", None), ("ü", "ß".encode())),
                ]
            ),
        )


def consumed(message: Message) -> ConsumedRecord:
    """Return a message of a consumer in the form of the oracle."""
    offset, (timestamp_type, timestamp_ms) = message.offset(), message.timestamp()
    assert offset is not None, "a consumed message has an offset"
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return ConsumedRecord(
        offset=offset,
        timestamp=timestamp_ms,
        timestampType=_TIMESTAMP_TYPES[timestamp_type],
        leaderEpoch=message.leader_epoch(),
        key=_base64(message.key()),
        value=_base64(message.value()),
        headers=[[name, _base64(value)] for name, value in pairs],
    )


def _base64(value: bytes | str | None) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _value(random: Random, size_bytes: int) -> bytes | None:
    """Return mostly text of up to ``size_bytes``, which compresses; sometimes noise, an empty value, or null."""
    kind = random.randrange(11)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return random.randbytes(min(size_bytes, 40))
    text = " ".join(random.choices(_WORDS, k=min(50, max(1, size_bytes // 7)))).encode()
    return (text * (size_bytes // len(text) + 1))[: random.randrange(1, size_bytes)]
