"""What Spark forks its Python workers from: a process that has imported and compiled what they need.

By itself every worker would do that again, which takes seconds of each run; and Spark's loop collects garbage after
each task, which takes 100 ms as long as the modules' objects are looked through. Named in
``spark.python.daemon.module``.
"""

import gc

import pyspark.worker  # noqa: F401 - every worker would read it from an archive
from pyspark.daemon import manager

import tierd.pipeline.jobs.key_shuffle  # noqa: F401 - for those that are forked
from tierd.kernels import compile_kernels

if __name__ == "__main__":
    compile_kernels()
    gc.freeze()
    manager()
