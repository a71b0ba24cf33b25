"""``tierd drill``: one drill by this process, and the history of drills. Neither a daemon nor a broker is needed."""

import random
from collections.abc import Callable
from dataclasses import replace

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import make_state_dir
from tierd.app.restore.drill_run import DrillProgress, DrillRequest, DrillRun
from tierd.app.restore.restore_source import SourceRequest, restore_source
from tierd.clock import SystemClock
from tierd.restore import DrillHistory
from tierd.tasks import in_thread


async def drill(
    deployment: Deployment,
    request: DrillRequest,
    source: SourceRequest,
    progress: DrillProgress,
    *,
    tell: Callable[[str], None],
) -> None:
    """Do one drill at the configured rate; ``tell`` is called with reports of the opening.

    Raises:
        ConfigError: the cluster is not known.
        TierError: a store cannot be opened, or ``DrillRun.run`` raised it.
    """
    clock = SystemClock()
    await in_thread(make_state_dir, deployment.state_dir)
    paced = replace(source, max_bytes_per_second=deployment.drill.max_bytes_per_second)
    async with restore_source(deployment, paced, clock=clock, tell=tell) as opened:
        history = DrillHistory(deployment.state_dir)
        await DrillRun(deployment, opened, history, clock=clock, random=random.random).run(request, progress)
