"""A stock broker under load loses its host: tier and standbys give back what a standby had acknowledged.

``python -m tests.scenarios.push --moments 50`` loses the host more often, and reports what it costs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeBroker
from tests.scenarios.lost_disks import VERSIONS
from tests.scenarios.push.losing_hosts import lose_host_again_and_again
from tests.scenarios.push.loss_checks import report
from tests.scenarios.push.loss_lab import PROPERTIES, LossLab
from tests.scenarios.warm_tierd import WarmTierd

pytestmark = pytest.mark.service("kafka")

MOMENTS = 2


@pytest.mark.spec("push-replication F1")
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_that_a_standby_acknowledged_is_lost_with_the_host(
    version: str,
    tmp_path: Path,
    make_broker: MakeBroker,
    warm_tierd: WarmTierd,
    record_property: Callable[[str, object], None],
) -> None:
    broker = make_broker(version, properties=PROPERTIES, has_own_controller=True)
    with LossLab(tmp_path, broker, warm_tierd) as lab:
        losses = list(lose_host_again_and_again(lab, moments=MOMENTS, seed=17))

    assert len(losses) == MOMENTS
    record_property("losses", report(losses))
