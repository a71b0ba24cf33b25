"""Check of the effective settings by the job: spark-submit may have been started with others than ours."""

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkContext

from tierd.config.spark_protection import PROTECTION
from tierd.errors import PipelineError
from tierd.pipeline.jobs.job_main import require_protection


def session(master: str, **settings: str) -> SparkContext:
    conf = SimpleNamespace(getAll=lambda: list(settings.items()))
    return cast("SparkContext", SimpleNamespace(master=master, getConf=lambda: conf))


def test_job_refuses_a_session_that_is_open_and_names_every_setting() -> None:
    with pytest.raises(PipelineError, match=r"spark\.authenticate must be true.*spark\.io\.encryption\.enabled must"):
        require_protection(session("local[2,4]"))
    require_protection(session("local[2,4]", **PROTECTION))


def test_job_names_no_secret_of_a_session_that_it_refuses() -> None:
    with pytest.raises(PipelineError) as caught:
        require_protection(session("spark://host:7077", **{"spark.authenticate.secret": "hush"}))
    assert "hush" not in str(caught.value)


def test_session_of_the_tests_is_protected(spark: "object") -> None:
    require_protection(spark.sparkContext)  # type: ignore[attr-defined]
