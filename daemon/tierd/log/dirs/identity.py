"""Whose tier this is: cluster and node, from the configuration or from what the log dirs say of themselves."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.errors import ConfigError, ConfigFault, LogDirOfflineError
from tierd.log.files.meta_properties import MetaProperties, read_meta_properties

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The cluster that the records belong to, and the broker whose log dirs these are."""

    cluster_id: str
    node_id: int


def broker_identity(
    config_file: Path, *, cluster_id: str | None, node_id: int | None, found: Mapping[Path, MetaProperties | None]
) -> BrokerIdentity:
    """Return the identity; what is configured must not contradict the log dirs, and they not one another.

    Args:
        config_file: named by the faults.
        cluster_id: as configured, None to take it from the log dirs.
        node_id: the same.
        found: the ``meta.properties`` of every log dir, None where there is none.

    Raises:
        ConfigError: nobody says, or two say different things.
    """
    faults: list[str] = []
    cluster = _agreed("cluster_id", cluster_id, found, lambda properties: properties.cluster_id, faults)
    node = _agreed("node_id", node_id, found, lambda properties: properties.node_id, faults)
    if cluster is None or node is None or faults:
        raise ConfigError([ConfigFault(config_file, 0, 0, fault) for fault in faults])
    return BrokerIdentity(str(cluster), int(node))


def read_identities(log_dirs: Iterable[Path]) -> dict[Path, MetaProperties | None]:
    """Read the ``meta.properties`` of every log dir; one that is offline says nothing while another one does. Blocking.

    Raises:
        CheckpointError: one cannot be understood.
        LogDirOfflineError: none can be read.
    """
    found: dict[Path, MetaProperties | None] = {}
    offline: list[LogDirOfflineError] = []
    for log_dir in log_dirs:
        try:
            found[log_dir] = read_meta_properties(log_dir)
        except LogDirOfflineError as error:
            offline.append(error)
            log.warning("log_dir_offline", log_dir=str(log_dir), problem=str(error), remedy=error.remedy)
    if offline and not found:
        raise offline[0]
    return found


def _agreed(
    key: str,
    configured: str | int | None,
    found: Mapping[Path, MetaProperties | None],
    value_of: Callable[[MetaProperties], str | int | None],
    faults: list[str],
) -> str | int | None:
    said = {log_dir: value_of(properties) for log_dir, properties in found.items() if properties is not None}
    said = {log_dir: value for log_dir, value in said.items() if value is not None}
    if configured is not None:
        said[Path("this file")] = configured
    values = set(said.values())
    if not values:
        faults.append(f"{key} is not set, and no log dir has a meta.properties that says it: set {key}")
        return None
    if len(values) > 1:
        each = ", ".join(f"{value} in {place}" for place, value in said.items())
        faults.append(f"{key} is ambiguous: {each}; list log dirs of one broker only")
        return None
    return values.pop()
