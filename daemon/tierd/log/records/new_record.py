"""NewRecord and Producer: what a writer of batches is given."""

from dataclasses import dataclass

from tierd.log.records.record import Header


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; its offset comes from its place in the batch. A timestamp of -1 is none."""

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
