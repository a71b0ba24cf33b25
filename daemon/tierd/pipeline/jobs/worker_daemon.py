"""What Spark forks its Python workers from: a process that has imported and compiled what they need.

By itself every worker would do that again, which takes seconds of each run. Named in ``spark.python.daemon.module``.
"""

from pyspark.daemon import manager

import tierd.pipeline.jobs.key_shuffle  # noqa: F401 - for those that are forked
from tierd.kernels import compile_kernels

if __name__ == "__main__":
    compile_kernels()
    manager()
