"""Restore of the cluster metadata into a log dir: a snapshot on which a controller starts (DESIGN 13, trap 5).

::

    <log dir>/__cluster_metadata-0/
        <20-digit end offset>-<10-digit epoch>.checkpoint   the snapshot
        quorum-state                                        its epoch; no leader, no vote

The node makes all other files when it starts: a snapshot that lies beyond the log replaces the log, which then begins
at the snapshot's end offset (Kafka: KafkaMetadataLog.truncateToLatestSnapshot). Without the ``quorum-state`` the node
would begin with epoch 0, warn of that, and take the epoch from the snapshot.
"""

import json
from typing import Final

from tierd.files import make_private_directory
from tierd.log import CLUSTER_METADATA, META_PROPERTIES, OsDisk, replace_file
from tierd.restore.catalogue.cluster_snapshot import ClusterSnapshot
from tierd.restore.log_dir.held_log_dir import HeldLogDir
from tierd.restore.log_dir.staged_files import make_empty

METADATA_DIRECTORY: Final = f"{CLUSTER_METADATA}-0"

_QUORUM_STATE: Final = "quorum-state"


def restore_cluster_metadata(held: HeldLogDir, snapshot: ClusterSnapshot, content: bytes) -> None:
    """Put the directory of the cluster metadata into the log dir, whole or not at all. Blocking.

    A directory that is there already stays as it is: an earlier run of the same restore has put it there.

    Raises:
        OSError: the disk is full or failing; the log dir has no such directory.
    """
    disk, final = OsDisk(), held.target.log_dir / METADATA_DIRECTORY
    if final.exists():
        return
    work = held.target.stage / METADATA_DIRECTORY
    ready = work / "ready"
    make_private_directory(work)
    make_empty(ready)
    replace_file(disk, ready / snapshot.name, content)
    replace_file(disk, ready / _QUORUM_STATE, _quorum_state(snapshot))
    held.give_to_owner(ready)
    disk.sync_directory(work)
    disk.rename(ready, final)
    disk.sync_directory(held.target.log_dir)
    disk.sync_directory(work)


def write_identity(held: HeldLogDir, meta_properties: str) -> None:
    """Write the identity that the log dir had, with its directory id; without it the broker takes another. Blocking.

    Raises:
        OSError: the disk is full or failing.
    """
    file = held.target.log_dir / META_PROPERTIES
    replace_file(OsDisk(), file, meta_properties.encode("latin-1"))
    held.give_to_owner(file)


def _quorum_state(snapshot: ClusterSnapshot) -> bytes:
    """Return the file of a node that has not voted in the snapshot's epoch (Kafka: FileQuorumStateStore)."""
    state = {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": snapshot.epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [],  # the configuration, or the snapshot, has them
        "data_version": 0,
    }
    return json.dumps(state, separators=(",", ":")).encode()
