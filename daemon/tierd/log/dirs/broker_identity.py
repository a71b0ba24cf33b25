"""Cluster and node that own the tier, from the configuration or from the ``meta.properties`` of the log dirs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import structlog

from tierd.errors import ConfigError, ConfigFault, LogDirOfflineError
from tierd.log.files.meta_properties import MetaProperties, read_meta_properties

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The cluster of the records, and the broker that owns the log dirs."""

    cluster_id: str
    node_id: int


class LogDirAbsence(Enum):
    """Reason for which a log dir names no cluster and no node."""

    NO_DIRECTORY = "does not exist"
    NO_META_PROPERTIES = "has no meta.properties"


FoundIdentity = MetaProperties | LogDirAbsence
"""What a log dir says of itself."""


def broker_identity(
    config_file: Path, *, cluster_id: str | None, node_id: int | None, found: Mapping[Path, FoundIdentity]
) -> BrokerIdentity:
    """Return the identity. The configuration and the log dirs must not contradict each other.

    Args:
        config_file: named by the faults.
        cluster_id: as configured, None to take it from the log dirs.
        node_id: the same.
        found: the identity in each log dir.

    Raises:
        ConfigError: the identity is in no place, or two places contradict each other. A log dir that does not exist is
            named instead of the value that it would have.
    """
    sources = {
        "cluster_id": _sources(cluster_id, found, lambda properties: properties.cluster_id),
        "node_id": _sources(node_id, found, lambda properties: properties.node_id),
    }
    faults = [fault for key, places in sources.items() for fault in _contradictions(key, places)]
    if missing := [key for key, places in sources.items() if not places]:
        # A log dir that is not there would have both values: one fault, not one for each key.
        faults += _missing_log_dirs(found) or [
            f"{key} is not set, and no log dir has a meta.properties that says it: set {key}" for key in missing
        ]
    if faults:
        raise ConfigError([ConfigFault(config_file, 0, 0, fault) for fault in faults])
    cluster, node = (next(iter(places.values())) for places in sources.values())
    return BrokerIdentity(str(cluster), int(node))


def read_identities(log_dirs: Iterable[Path]) -> dict[Path, FoundIdentity]:
    """Read the ``meta.properties`` of every log dir. A log dir that is offline is left out. Blocking.

    Raises:
        CheckpointError: the content of a file is no ``meta.properties``.
        LogDirOfflineError: no log dir can be read.
    """
    found: dict[Path, FoundIdentity] = {}
    offline: list[LogDirOfflineError] = []
    for log_dir in log_dirs:
        try:
            found[log_dir] = read_meta_properties(log_dir) or _absence(log_dir)
        except LogDirOfflineError as error:
            offline.append(error)
            log.warning("log_dir_offline", log_dir=str(log_dir), problem=str(error), remedy=error.remedy)
    if offline and not found:
        raise offline[0]
    return found


def _absence(log_dir: Path) -> LogDirAbsence:
    return LogDirAbsence.NO_META_PROPERTIES if log_dir.is_dir() else LogDirAbsence.NO_DIRECTORY


def _missing_log_dirs(found: Mapping[Path, FoundIdentity]) -> list[str]:
    return [
        f"log_dirs: {log_dir} {absence.value}: correct the path, or mount its disk"
        for log_dir, absence in found.items()
        if absence is LogDirAbsence.NO_DIRECTORY
    ]


def _sources(
    configured: str | int | None,
    found: Mapping[Path, FoundIdentity],
    value_of: Callable[[MetaProperties], str | int | None],
) -> dict[Path, str | int]:
    """Return each place that has the value, with its value."""
    values = {log_dir: value_of(each) for log_dir, each in found.items() if isinstance(each, MetaProperties)}
    known = {log_dir: value for log_dir, value in values.items() if value is not None}
    return known if configured is None else known | {Path("this file"): configured}


def _contradictions(key: str, places: Mapping[Path, str | int]) -> list[str]:
    if len(set(places.values())) < 2:
        return []
    each = ", ".join(f"{value} in {place}" for place, value in places.items())
    return [f"{key} is ambiguous: {each}; list log dirs of one broker only"]
