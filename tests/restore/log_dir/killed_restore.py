"""Child processes of a ``ForkingParent``, which restore a partition until they are killed at a step of the journal."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from tests.fakes.forking_parent import serve_lines
from tests.restore.log_dir.lab import Lab, lost_partition
from tierd.restore.journal import Journal, JournalStep
from tierd.restore.plan.partition_plan import RestoreMode

NEVER: Final = -1


def kill_at(moment: int) -> None:
    """Have the process killed at a write of the journal: before it for an even number, else after it."""
    append, moments = Journal.append, iter(range(1 << 30))

    def killing(journal: Journal, step: JournalStep) -> None:
        for is_written in (False, True):
            if next(moments) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            if not is_written:
                append(journal, step)

    Journal.append = killing  # type: ignore[assignment, method-assign]  # the process ends soon


async def _restore(root: Path) -> None:
    """Restore the same partition as every child, from a tier of its own, into the log dir of all children."""
    tier = Lab(root / f"tier-{os.getpid()}")
    await Lab(root, store=tier.store).restore(await lost_partition(tier, RestoreMode.LAST_COPY))


def live(line: str) -> int:
    """Run one child: ``<moment of the kill> <directory>``."""
    moment, root = line.split(maxsplit=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # standard output is for exit codes; the log goes there too
    kill_at(int(moment))
    asyncio.run(_restore(Path(root.strip())))
    return 0


if __name__ == "__main__":
    serve_lines(live)
