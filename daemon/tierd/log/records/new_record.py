"""NewRecord and Producer: the arguments of the code that writes batches."""

from dataclasses import dataclass

from tierd.log.records.record import Header


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; its place in the batch decides its offset. A timestamp of -1 means no timestamp."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Producer:
    """Producer of a batch, and the sequence number of the batch's first record; all -1 without a producer id."""

    id: int = -1
    epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER = Producer()
