"""A leader that tierd owns loses its host: all that its producers took for safe comes back, with MQTT down as well."""

from pathlib import Path

import pytest

from tests.scenarios.push.own_lab import OwnLab
from tests.scenarios.warm_tierd import WarmTierd


def test_nothing_that_was_safe_is_lost_with_the_host_of_a_leader_with_owned_logs(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    with OwnLab(tmp_path, warm_tierd, standbys=2) as lab:
        lab.wait_protected()
        lab.wait_more_safe()
        lab.lose_host()
        lab.restore()
        lab.assert_restored()
