"""RoleTasks: the tasks of one replica, by its role."""

from dataclasses import dataclass

from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.removing.expiration_task import ExpirationTask
from tierd.tiering.removing.sweep import DanglingSweep
from tierd.tiering.supervision import PartitionTask


@dataclass(slots=True)
class RoleTasks:
    """Tasks of one replica; none of them while its role is not known.

    Attributes:
        copy: while the replica is led and its topic is copied.
        expire: while the replica is led.
        follow: while the replica is followed.
        sweep: the sweep that ``copy`` and ``expire`` share.
    """

    copy: CopyTask | None = None
    expire: ExpirationTask | None = None
    follow: FollowerTask | None = None
    sweep: DanglingSweep | None = None

    def all(self) -> tuple[PartitionTask, ...]:
        """Return the tasks that run."""
        return tuple(task for task in (self.copy, self.expire, self.follow) if task is not None)

    def wake(self) -> None:
        """Wake all tasks: there is something new for them to do."""
        for task in self.all():
            task.wake.set()
