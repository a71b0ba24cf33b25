"""RoleTasks: what runs for one replica, by its role."""

from dataclasses import dataclass

from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.removing.expiration_task import ExpirationTask
from tierd.tiering.removing.sweep import DanglingSweep
from tierd.tiering.supervision import PartitionTask


@dataclass(slots=True)
class RoleTasks:
    """The tasks of one replica; none of them while its role is not known.

    Attributes:
        copy: while it is led and its topic is copied.
        expire: while it is led.
        follow: while it is followed.
        sweep: what ``copy`` and ``expire`` share.
    """

    copy: CopyTask | None = None
    expire: ExpirationTask | None = None
    follow: FollowerTask | None = None
    sweep: DanglingSweep | None = None

    def all(self) -> tuple[PartitionTask, ...]:
        """Those that run."""
        return tuple(task for task in (self.copy, self.expire, self.follow) if task is not None)

    def wake(self) -> None:
        """Tell all of them that there is news."""
        for task in self.all():
            task.wake.set()
