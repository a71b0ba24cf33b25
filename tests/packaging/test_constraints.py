"""Pins of ``constraints.txt``, as they are installed."""

import warnings
from importlib.metadata import version
from pathlib import Path

from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

ROOT = Path(__file__).parents[2]


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{package}==")]
    return line.removeprefix(f"{package}==")


def test_pinned_pandas_causes_no_warning_of_pyspark() -> None:
    assert (version("pandas"), version("pyspark")) == (pinned("pandas"), pinned("pyspark"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_minimum_pandas_version()
        require_minimum_pyarrow_version()
