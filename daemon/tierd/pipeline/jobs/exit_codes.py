"""Exit codes of a job's process, for the process that started it."""

from enum import IntEnum


class JobExit(IntEnum):
    """Exit code of a run.

    Attributes:
        DONE: the order was carried out; the leader has the outcome of each group.
        FAILED: the run could not go on; what was committed stays, and the next run does the rest.
        USAGE: wrong arguments, or a configuration that cannot be used.
        LEADER_GONE: the leader hung up, or never answered.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    LEADER_GONE = 3
