"""The story: a host is lost at a random moment, restored, checked, and lost again."""

import time
from collections.abc import Iterator
from random import Random

from tests.scenarios.journal import Journal
from tests.scenarios.push.loss_checks import Loss, Restored, assert_restored, named
from tests.scenarios.push.loss_lab import PARTITIONS, LossLab
from tests.scenarios.push.loss_traffic import LossTraffic, PartitionName

_LONGEST_S = 4.0
_SHORTEST_S = 1.0


def lose_host_again_and_again(lab: LossLab, *, moments: int, seed: int) -> Iterator[Loss]:
    """Yield the cost of each loss, after the broker on the restored log dir has served what it has to."""
    random, journal, log_starts = Random(seed), Journal(), dict[PartitionName, int]()
    lab.begin()
    with LossTraffic(lab.broker, journal, log_starts, seed=f"{seed}.first"):
        lab.wait_tiered()
    for moment in range(moments):
        if moment:
            lab.begin()
        with LossTraffic(lab.broker, journal, log_starts, seed=f"{seed}.{moment}") as traffic:
            time.sleep(_SHORTEST_S + (_LONGEST_S - _SHORTEST_S) * random.random())  # the moment of the loss
            traffic.cease()  # orders fail from now on; what is on its way is lost with the host
            cut_s = lab.lose_host()
            traffic.join()
            held = [lab.copied_ends(copies) for copies in lab.copies]
            ends = lab.restore()
            loss = Loss.of(traffic, ends, cut_s)
        lab.broker.start(1)
        acknowledged = {each: max(copied[each] for copied in held) for each in PARTITIONS}
        assert_restored(lab.broker, journal, Restored(acknowledged, log_starts, ends))
        for topic, partition in PARTITIONS:
            journal.lose(topic, partition, from_offset=ends[named((topic, partition))])
        yield loss
