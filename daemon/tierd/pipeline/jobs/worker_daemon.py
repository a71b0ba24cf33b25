"""Process that Spark forks its Python workers from: it has imported and compiled what they need.

Without this process every worker would import and compile again, which takes seconds of each run. Spark's loop collects
garbage after each task, which takes 100 ms unless the modules' objects are frozen. ``spark.python.daemon.module`` names
this module.
"""

import gc
import os
from functools import partial
from typing import Final

import pyspark.worker  # noqa: F401 - every worker would read it from an archive
from pyspark.daemon import manager

import tierd.pipeline.jobs.key_shuffle  # noqa: F401 - for those that are forked
from tierd.kernels import compile_kernels
from tierd.pipeline.jobs.spark_session_settings import WORKER_UMASK
from tierd.process_memory import keep_freed_memory

_KEPT_BYTES: Final = 256 << 20


def give_workers_their_umask() -> None:
    """Have forked workers write with the umask of tierd; this process keeps its own, so that its socket is private."""
    umask = os.environ.get(WORKER_UMASK)
    if umask is not None:
        os.register_at_fork(after_in_child=partial(os.umask, int(umask, 8)))


if __name__ == "__main__":
    keep_freed_memory(piece_bytes=_KEPT_BYTES, kept_bytes=_KEPT_BYTES, arenas=1)
    compile_kernels()
    give_workers_their_umask()
    gc.freeze()
    manager()
