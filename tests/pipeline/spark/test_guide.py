"""Every block of Python in docs/spark.md, run in one session as a notebook would."""

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.source.small_tier import SmallTier

GUIDE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_code_blocks_of_the_guide_run_in_order(spark: SparkSession, tmp_path: Path) -> None:
    tier = SmallTier(tmp_path)
    base_s = 1_700_000_000
    for first in range(0, 100, 50):
        tier.append(50, times_s=[base_s + offset for offset in range(first, first + 50)])
        tier.roll()
    tier.copy()
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    cells: dict[str, object] = {"spark": spark, "config": str(tier.installation.config_file), "folder": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), cells)
    minute, counted, tens = cells["minute"], cells["counted"], cells["tens"]
    assert isinstance(minute, DataFrame)
    assert isinstance(counted, DataFrame)
    assert isinstance(tens, DataFrame)
    assert minute.count() == 60
    assert sorted(row.offset for row in tens.collect()) == list(range(10, 20))
    assert [row["count"] for row in counted.collect()] == [100]
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 100
    assert len(blocks) >= 5
