"""SIGKILL and SIGSTOP of either side at random: no copy has what its leader lacks, and none lacks what was safe."""

import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.push.own_lab import LEADER, STANDBY, OwnLab
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.waiting import wait_until_stopped

_FAULTS = 5
Fault = Callable[[OwnLab, int], None]


def kill(lab: OwnLab, node: int) -> None:
    """End a daemon as a power cut ends a process, and start it again."""
    daemon = lab.daemons[node]
    daemon.kill()
    daemon.start()
    daemon.wait_ready()


def freeze(lab: OwnLab, node: int) -> None:
    """Stop a daemon until the other side has given the session up, then let it continue in the middle of it."""
    daemon, other = lab.daemons[node], STANDBY if node == LEADER else LEADER
    daemon.send_signal(signal.SIGSTOP)
    wait_until_stopped(daemon.pid)
    if other == STANDBY:
        lab.wait_status("standby: node 1 does not answer", node=STANDBY)
    else:
        lab.wait_status("has no session", "not protected: ")
        lab.wait_more_safe()
    daemon.send_signal(signal.SIGCONT)


@pytest.mark.spec("push-replication F1")
@pytest.mark.spec("push-replication F2")
@pytest.mark.spec("push-replication F3")
@pytest.mark.spec("push-replication F4")
@pytest.mark.parametrize("seed", [1, 2])
def test_sides_that_are_killed_and_frozen_at_random_agree_in_the_end(
    seed: int, tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    random = Random(seed)
    faults: tuple[Fault, ...] = (kill, freeze)
    with OwnLab(tmp_path, warm_tierd) as lab:
        lab.wait_protected()
        for number in range(_FAULTS):
            fault, node = random.choice(faults), random.choice((LEADER, STANDBY))
            fault(lab, node)
            if random.random() < 1 / 2 or number == _FAULTS - 1:
                lab.wait_protected()
        lab.assert_same_copies()
