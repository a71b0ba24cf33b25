"""A restore plans a partition again when the standby that it joins was cleaned since the plan."""

import os
import shutil
from pathlib import Path

from tests.scenarios.installation import Installation
from tierd.app.engine.deployment import Deployment
from tierd.app.restore.log_dir_plan import LogDirPlanRequest
from tierd.app.restore.log_dir_restore import LogDirOutcome, LogDirRestoreRequest, log_dir_restore
from tierd.config import load_config
from tierd.model import TopicPartition
from tierd.restore import RestoreMode

ORDERS = TopicPartition("orders", 0)


async def test_records_of_a_standby_that_was_cleaned_after_the_plan_come_back(
    copied: Installation, into: Path, tmp_path: Path
) -> None:
    standby = tmp_path / "standby"
    shutil.move(into / "orders-0", standby / "orders-0")
    copied.configure({"topics": {"overrides": [{"match": "orders", "cleanup_policy": "compact"}]}})
    deployment = Deployment(load_config(copied.config_file, os.environ), copied.config_file)
    plan = LogDirPlanRequest(names=(ORDERS,), mode=RestoreMode.LAST_COPY, retention_ms=-1, standbys=(standby,))
    outcomes: list[LogDirOutcome] = []

    async with log_dir_restore(deployment, LogDirRestoreRequest(into=into, stage=None, plan=plan)) as restore:
        (planned,) = restore.plan.plans
        assert [(each.start_offset, each.end_offset) for each in planned.joins] == [(12, 16)]
        (standby / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 14\n")  # the standby runs
        await restore.run(arrived=lambda _: None, finished=outcomes.append)

    (outcome,) = outcomes
    assert outcome.restored is not None, outcome.problem
    assert (outcome.restored.end_offset, outcome.plan.parts) == (16, ())
    assert [each[1:] for each in outcome.restored.joined] == [(0, 16)]
