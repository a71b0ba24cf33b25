"""Commands of docs/state-stores.md, run in their order as they are printed, with other paths."""

import re
import shlex
from pathlib import Path

from tests.pipeline.source.small_tier import SmallTier
from tests.scenarios.warm_tierd import WarmTierd
from tierd.log import NewRecord, encode_batch

DOCS = Path(__file__).parents[2] / "docs"
MINUTE_MS = 60_000


def printed_commands() -> list[list[str]]:
    """Return the arguments of the commands in the blocks of the page."""
    page = (DOCS / "state-stores.md").read_text()
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", page, flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


def printed_topology() -> str:
    """Return the topology file that docs/formats.md prints."""
    formats = (DOCS / "formats.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", formats, flags=re.MULTILINE | re.DOTALL)
    (topology,) = (block for block in blocks if "application_id" in block)
    return str(topology)


def append_windows(tier: SmallTier, topic: str) -> None:
    """Append what a window store writes: the key, the start of the window in 8 bytes, a number in 4."""
    windows = [
        NewRecord(b"k%d" % n + (n * MINUTE_MS).to_bytes(8, "big") + bytes(4), b"v%d" % n, n * MINUTE_MS)
        for n in range(20)
    ]
    tier.partition(topic).append_batch(encode_batch(windows, leader_epoch=0), len(windows))
    tier.roll(topic)
    tier.copy()


def test_every_printed_command_does_what_the_page_says(tmp_path: Path, warm: WarmTierd) -> None:
    tier = SmallTier(tmp_path)
    for topic, number in (("app-counts-changelog", 0), ("app-counts-changelog", 1), ("orders-counts-changelog", 0)):
        tier.add_segment(20, topic, number)
    append_windows(tier, "orders-hourly-changelog")
    (tmp_path / "topology.yaml").write_text(printed_topology())
    places = {
        "/var/lib/app/state": str(tmp_path / "state"),
        "/var/lib/kafka-streams": str(tmp_path / "streams"),
        "topology.yaml": str(tmp_path / "topology.yaml"),
    }
    commands = printed_commands()
    assert len(commands) == 4
    for arguments in commands:
        given = [places.get(each, each) for each in arguments]
        into = Path(given[given.index("--into") + 1])
        is_plan = "--dry-run" in arguments

        done = warm.run(*given, "--config", str(tier.installation.config_file))

        assert done.exit_code == 0, f"{shlex.join(arguments)}: {done.output}"
        assert into.exists() is not is_plan
        assert ("2 of 2 stores are complete" in done.stdout) is not is_plan
    assert (tmp_path / "state/app-counts-changelog-1/sqlite/store.sqlite").exists()
    assert (tmp_path / "streams/orders/0_0/rocksdb/counts").is_dir()
    assert list((tmp_path / "streams/orders/0_0/hourly").iterdir())
