"""Topic, partition and segment identities, and Kafka's text form of a UUID."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from uuid import UUID, uuid4

from tierd.errors import PartitionNameError

_STANDARD_BASE64 = bytes.maketrans(b"-_", b"+/")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def random_id(make: Callable[[], UUID] = uuid4) -> UUID:
    """Return a random id whose text does not begin with a hyphen (Kafka: Uuid.randomUuid).

    A command would take such a text for an option.
    """
    while uuid_to_text(made := make()).startswith("-"):
        pass
    return made


def uuid_to_text(value: UUID) -> str:
    """Return Kafka's form: 22 characters of URL-safe base64 without padding (Kafka: Uuid.toString)."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Parse Kafka's 22-character form.

    Raises:
        ValueError: not 22 characters of URL-safe base64.
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is not a 22-character topic or segment id")
    try:
        # As base64.b64decode does it, which makes its table anew each time: a start reads an id from every row.
        standard = text.encode("ascii").translate(_STANDARD_BASE64) + b"=="
        return UUID(bytes=binascii.a2b_base64(standard, strict_mode=True))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error


def is_topic_name(text: str) -> bool:
    """Return True if Kafka takes ``text`` as the name of a topic (Kafka: Topic.validate)."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in {".", ".."}


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by name, of any incarnation of the topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``topic-partition``, splitting at the last dash (log-format 1.1, step 3).

        Raises:
            PartitionNameError: no dash, an empty part, or a partition that is no 32-bit decimal.
        """
        topic, dash, number = text.rpartition("-")
        digits = number.removeprefix("-")
        if not (dash and topic and digits.isascii() and digits.isdigit()) or int(number) >= 2**31:
            raise PartitionNameError(
                f"{text!r} is not <topic>-<partition>",
                remedy="name it as Kafka names its directories: orders-0",
            )
        return cls(topic, int(number))


PartitionKey = tuple[UUID, int]
"""Topic id and partition number: what tells partitions apart where no name is needed."""


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """One incarnation of a partition: a topic created again under the same name has another ``topic_id``."""

    topic_id: UUID
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the name without the incarnation."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """One copy attempt of one segment; every attempt, a retry included, gets a fresh ``id`` (remote-tiering 2.1)."""

    topic_id_partition: TopicIdPartition
    id: UUID

    def __str__(self) -> str:
        return f"{self.topic_id_partition}:{uuid_to_text(self.id)}"
