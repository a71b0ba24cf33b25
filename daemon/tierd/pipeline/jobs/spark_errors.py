"""Error of a failed Spark job, in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from tierd.errors import PipelineError
from tierd.masking import Masking, masked

_MAX_CHARACTERS: Final = 500
_EXCEPTION = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+(?P<kind>[\w$]+)(?:: (?P<message>.*))?$", re.MULTILINE)


@contextmanager
def spark_errors(spark: SparkContext, doing: str) -> Iterator[None]:
    """Translate the failure of a job that runs in the context.

    Raises:
        PipelineError: the job failed.
    """
    try:
        yield
    except Py4JJavaError as error:
        raise PipelineError(
            f"{doing}: {_problem_of(spark, error)}", remedy="look at the run's log; the next run begins anew"
        ) from Masking().error(error)


def _problem_of(spark: SparkContext, error: Py4JJavaError) -> str:
    """Return why a job failed, from the innermost exception, masked; a full disk is named."""
    text = masked(str(error.java_exception.getMessage() or error.java_exception))
    if "No space left on device" in text:
        return f"no space is left in {spark.getConf().get('spark.local.dir', '')}, Spark's local directory"
    found = list(_EXCEPTION.finditer(text))
    line = f"{found[-1]['kind']}: {found[-1]['message'] or ''}" if found else text.strip().partition("\n")[0]
    return f"Spark: {line[:_MAX_CHARACTERS]}"
