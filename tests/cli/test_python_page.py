"""Code and commands of docs/python.md, run in their order as they are printed, with other paths."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.exporting.exported import all_offsets, files
from tests.pipeline.source.small_tier import SmallTier
from tests.scenarios.warm_tierd import WarmTierd

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
NOON_S = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp())


class Block(NamedTuple):
    """Block of code of the page."""

    language: str
    text: str


def printed_blocks() -> Iterator[Block]:
    """Yield the blocks of the page in their order."""
    for indent, language, text in re.findall(r"^( *)```(\w+)\n(.*?)^ *```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield Block(language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))


@pytest.fixture
def small(tmp_path: Path) -> SmallTier:
    """Return topics of two partitions; the records of ``orders-0`` are of the ten seconds before and behind noon."""
    made = SmallTier(tmp_path / "tier")
    made.append(20, times_s=range(NOON_S - 10, NOON_S + 10))
    made.append(20, number=1)
    made.append(20, "payments")
    for topic, number in (("orders", 0), ("orders", 1), ("payments", 0)):
        made.roll(topic, number)
    made.copy()
    return made


def test_every_printed_block_does_what_the_page_says(
    small: SmallTier, tmp_path: Path, warm: WarmTierd, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"/etc/tierd/tierd.yaml": str(small.installation.config_file), "/data/": f"{tmp_path}/data/"}
    namespace: dict[str, Any] = {"__name__": "page"}
    counts = {"python": 0, "bash": 0}
    for block in printed_blocks():
        text = block.text
        for place, here in places.items():
            text = text.replace(place, here)
        if block.language == "python":
            exec(compile(text, f"{PAGE.name}: {block.text[:40]!r}", "exec"), namespace)
            counts["python"] += 1
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            if program == "pip":
                continue
            done = warm.run(*arguments, "--config", str(small.installation.config_file))
            assert done.exit_code == 0, f"{line}: {done.output}"
            assert (tmp_path / "data").exists() is ("--dry-run" not in arguments)
            counts["bash"] += 1
    assert counts == {"python": 6, "bash": 5}
    said = capsys.readouterr().out
    assert "<Scan of orders: 2 partitions, 40 offsets" in said
    assert "40 records, 40 of 40 offsets" in said
    assert [(each.start_offset, each.end_offset) for each in namespace["narrow"].ranges] == [(10, 20)]
    assert b"'tierd.next_offset': b'20'" in said.encode()
    data = tmp_path / "data"
    assert all_offsets(data / "orders") == sorted([*range(20), *range(20)])
    assert all_offsets(data / "may") == [*range(20)]
    assert len(all_offsets(data / "payments")) == 20
    assert {name.rpartition("/")[0] for name in files(data / "lake")} == {
        "topic=orders/date=1970-01-01",
        "topic=orders/date=2024-05-01",
        "topic=payments/date=1970-01-01",
    }
