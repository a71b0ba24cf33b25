"""StreamsTopology: the stores of an application, read from a YAML file (DESIGN 13, trap 12).

::

    application_id: orders
    stores:
      - name: counts
        changelog: orders-counts-changelog
        subtopology: 0
        type: timestamped-key-value
      - name: hourly
        changelog: orders-hourly-changelog
        subtopology: 0
        type: timestamped-window
        retention: 1d
        segment_interval: 12h

``Topology.describe()`` of an application prints subtopologies and store names. Retention is that of the store; unless
the application sets a segment interval itself, it is the greater of half the retention and one minute.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tierd.config import Duration, PlacedFaultsError, Text, load_side_file
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType, is_streams_name


def _application_id(text: str) -> str:
    if not is_streams_name(text):
        raise ValueError(f"{text!r} cannot be an application id: letters, digits, '.', '_' and '-'")
    return text


class StreamsTopologyEntry(BaseModel):
    """One store, as the file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    changelog: Text
    subtopology: Annotated[int, Field(ge=0)]
    type: StreamsStoreType
    retention: Duration | None = None
    segment_interval: Duration | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        try:
            self.store()
        except ValueError as error:
            raise PlacedFaultsError([(("type",), str(error))]) from error
        return self

    def store(self) -> StreamsStore:
        """Return the entry as a value of this room.

        Raises:
            ValueError: a value is missing, superfluous or impossible.
        """
        return StreamsStore(
            name=self.name,
            changelog=self.changelog,
            subtopology=self.subtopology,
            type=self.type,
            retention_ms=_milliseconds(self.retention),
            segment_interval_ms=_milliseconds(self.segment_interval),
        )


class StreamsTopology(BaseModel):
    """Stores of one application; names and changelogs are unique."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    application_id: Annotated[Text, AfterValidator(_application_id)]
    stores: Annotated[tuple[StreamsTopologyEntry, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_no_store_twice(self) -> Self:
        for key in ("name", "changelog"):
            seen: set[str] = set()
            for index, entry in enumerate(self.stores):
                if (name := getattr(entry, key)) in seen:
                    raise PlacedFaultsError([(("stores", index, key), f"{name} is there twice")])
                seen.add(name)
        return self

    def store_of(self, changelog: str) -> StreamsStore | None:
        """Return the store whose changelog is the topic ``changelog``; None if no store has it."""
        return next((entry.store() for entry in self.stores if entry.changelog == changelog), None)


def load_streams_topology(path: Path) -> StreamsTopology:
    """Read the topology file at ``path``. Blocking.

    Raises:
        ConfigError: it cannot be read, or anything in it is wrong; names every fault with its place.
    """
    return load_side_file(path, StreamsTopology)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
