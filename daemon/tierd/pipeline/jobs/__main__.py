"""Entry point, for ``python -m tierd.pipeline.jobs`` and, as a file, for spark-submit."""

import sys

from tierd.pipeline.jobs.job_main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
