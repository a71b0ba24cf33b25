"""A standby whose disk is full: it takes no more, loses nothing, and catches up once there is room."""

import subprocess
from pathlib import Path

import pytest

from tests.scenarios.command import TIERD
from tests.scenarios.push.own_lab import STANDBY, OwnLab
from tests.scenarios.warm_tierd import WarmTierd

_RESERVE_MIB = 64  # which the standby leaves free
_SCRIPT = """
mount -t tmpfs -o mode=700,size={small}m none {copies} || exit 99
( while [ ! -e {room} ]; do sleep 0.1; done; mount -o remount,size={large}m {copies} ) &
exec "$0" "$@"
"""


@pytest.mark.spec("push-replication F19")
def test_full_standby_is_named_and_catches_up_when_there_is_room(tmp_path: Path, warm_tierd: WarmTierd) -> None:
    _require_mounts()
    copies, room = tmp_path / "standby-2" / "copies", tmp_path / "room"
    script = _SCRIPT.format(copies=copies, room=room, small=_RESERVE_MIB + 1, large=4 * _RESERVE_MIB)
    command = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(TIERD))
    lab = OwnLab(tmp_path, warm_tierd, standby_command=command)
    copies.mkdir()
    with lab:
        lab.wait_protected()
        lab.wait_status("standby: the disk of the copies is full", node=STANDBY)
        lab.wait_status("has no session", "not protected: ")
        lab.wait_more_safe()  # the leader waits no longer for a standby that lags for too long
        room.touch()
        lab.wait_protected()
        assert "the disk of the copies is full" not in lab.status(STANDBY)


def _require_mounts() -> None:
    tried = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip("mounting a small file system is not permitted here")
