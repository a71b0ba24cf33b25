"""Commands of docs/restore.md, run in their order as they are printed, with other paths."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import UUID

from tests.cli.catalogues import catalogued, write_catalogue
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.cli.restore_output import archived_json
from tierd.log import list_log_dir
from tierd.remote import ArchiveState, ObjectInfo

PAGE = Path(__file__).parents[2] / "docs" / "restore.md"


def printed_commands(*verbs: str) -> list[list[str]]:
    """Return the arguments of the commands of these verbs in the blocks of the page."""
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    return [arguments for arguments in commands if arguments[1] in verbs]


def know_the_catalogue(tierd: Installation, log_dir: LogDirWriter) -> None:
    """Write a catalogue that assigns the partition to broker 1, as its daemon does."""
    (directory,) = (d for d in list_log_dir(log_dir.path).partitions if d.topic_partition.topic == "orders")
    topic = catalogued(directory.partition, replicas=(1,), config={"cleanup.policy": "delete"})
    asyncio.run(write_catalogue(tierd.store_dir, topics=[topic]))


def empty_topic(new: LogDirWriter) -> None:
    """Make the topic of another cluster, or empty it."""
    shutil.rmtree(new.path / "orders-0", ignore_errors=True)
    new.add_partition("orders", topic_id=UUID(int=77))
    new.write_checkpoints()


def test_every_printed_command_does_what_the_page_says(
    copied: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    new = LogDirWriter(tmp_path / "new")
    know_the_catalogue(copied, log_dir)
    standby = shutil.copytree(log_dir.path, tmp_path / "standby")
    shutil.rmtree(log_dir.path / "orders-0")
    commands = printed_commands("partition", "log-dir")
    assert len(commands) == 15
    places = {
        "/var/lib/kafka/data": str(log_dir.path),
        "/var/lib/kafka-new/data": str(new.path),
        "/srv/standby": str(standby),
    }
    for arguments in commands:
        assert arguments[0] == "restore"
        is_plan = "--dry-run" in arguments
        into = new.path if "import" in arguments else log_dir.path
        if "--for-broker" in arguments:
            shutil.rmtree(into / "orders-0", ignore_errors=True)
            shutil.rmtree(f"{into}.tierd-restore", ignore_errors=True)  # it was on the same disk
        if "import" in arguments:
            empty_topic(new)
        was_there = (into / "orders-0").exists()

        done = copied.tierd(*(places.get(each, each) for each in arguments))

        assert done.exit_code == 0, f"{shlex.join(arguments)}: {done.output}"
        partitions = "2 of 2" if "--standby" in arguments else "1 of [12]"  # the tier has nothing of audit-0
        assert re.search(rf"^{partitions} partitions: ", done.stdout, flags=re.MULTILINE), done.stdout
        assert (into / "orders-0").exists() is (was_there if is_plan else True)


def test_printed_commands_that_lift_holds_run(copied: Installation) -> None:
    commands = printed_commands("release-retention")
    assert commands == [["restore", "release-retention", "--dry-run"], ["restore", "release-retention"]]
    for arguments in commands:
        done = copied.tierd(*arguments)
        assert (done.exit_code, done.stdout) == (0, "tierd holds the retention of no topic\n")


def test_printed_commands_of_the_quarantine_run_without_a_daemon(tierd: Installation) -> None:
    quarantine = {"listeners": [{"listen": "127.0.0.1:9192"}], "quarantine": {"listeners": ["PLAINTEXT"]}}
    tierd.configure({"kafka": quarantine})
    commands = printed_commands("hold", "release")
    assert commands == [["endpoint", "hold"], ["endpoint", "release"]]
    for arguments in commands:
        done = tierd.tierd(*arguments)
        assert done.exit_code == 0, done.output
        assert "clients of listener PLAINTEXT" in done.stdout


ARCHIVED = [
    ObjectInfo("tier/a b.log", 9, storage_class="GLACIER", archive=ArchiveState.ARCHIVED),
    ObjectInfo("tier/thawing.log", 9, storage_class="GLACIER", archive=ArchiveState.THAWING),
    ObjectInfo("tier/c'd.log", 9, storage_class="DEEP_ARCHIVE", archive=ArchiveState.ARCHIVED),
]


def printed_loop() -> str:
    """Return the command of the page that thaws objects."""
    section = PAGE.read_text().partition("\n## Archived objects\n")[2].partition("\n## ")[0]
    (loop,) = re.findall(r"^```\n(tierd .*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return str(loop)


def test_printed_loop_thaws_each_archived_object_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"archived": archived_json(ARCHIVED)}))
    programs = {
        "tierd": f'echo tierd "$@" > {tmp_path}/planned; cat {tmp_path}/plan.json; exit 4',  # the plan is refused
        "aws": f"printf '%s\\n' \"$@\" >> {tmp_path}/thawed",
        "python3": f'exec {sys.executable} "$@"',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", printed_loop()],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "planned").read_text().split()[:3] == ["tierd", "restore", "log-dir"]
    thawed = (tmp_path / "thawed").read_text().splitlines()
    assert [thawed[n + 1] for n, word in enumerate(thawed) if word == "--key"] == ["tier/a b.log", "tier/c'd.log"]
    request = json.loads(thawed[thawed.index("--restore-request") + 1])
    assert request == {"Days": 7, "GlacierJobParameters": {"Tier": "Bulk"}}
