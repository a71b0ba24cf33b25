"""Audits of a soak: every reading is compared with the journal of the producers and with a real consumer."""

import shutil
from collections.abc import Sequence

from tests.scenarios.installation import Installation
from tests.scenarios.journal import Record, assert_agrees
from tests.services.waiting import wait_until
from tests.soak.consumer_oracle import Partition
from tests.soak.lab import ALL_PARTITIONS, SoakLab
from tests.soak.topics import COMPACTED, TRANSACTIONS

READ_DEADLINE_S = 90.0
WITH_TRANSACTIONS = (COMPACTED, TRANSACTIONS.name)
PASSING_REFUSALS = (
    "is not in the tier yet",
    "is in neither tier",
    "the broker is replacing segments",
    "grace (expire.grace) is over",
)


def audit_live(lab: SoakLab, tierd: Installation) -> None:
    """Fail unless both tiers together give, up to the end of the log, the records of consumer and journal."""
    consumed = lab.oracle.observe(ALL_PARTITIONS)
    for each in ALL_PARTITIONS:
        end = consumed[each][-1]["offset"] + 1 if consumed[each] else 0
        found = _read_through(lab, tierd, each, end)
        _assert_reading(lab, each, found, end=end, what=f"{_name(each)} live")


def audit_remote_only(lab: SoakLab, tierd: Installation, *, what: str) -> None:
    """Fail unless a host without any log dir reads the records of consumer and journal from the tier.

    Args:
        lab: its topics are no longer written.
        tierd: the installation whose metadata store is read.
        what: the name of the audit in messages.
    """
    reader = _without_logs(lab, tierd)
    for topic, partition in ALL_PARTITIONS:
        rolled = lab.broker.base_offsets(topic, partition)[-1]
        if not rolled:
            continue  # the tier has no segment of this partition
        found = reader.cat(_name((topic, partition)), "--committed")
        end = _stable_end(found, rolled) if topic in WITH_TRANSACTIONS else rolled
        _assert_reading(lab, (topic, partition), found, end=end, what=f"{topic}-{partition} {what}")


def rebuilt(lab: SoakLab) -> Installation:
    """Return an installation whose metadata store was rebuilt from the bucket alone."""
    fresh = lab.installation("rebuilt", lab.broker.log_dirs)
    ended = fresh.tierd("rebuild-metadata")
    assert ended.exit_code == 0, f"rebuild-metadata: {ended.output}"
    return fresh


def audit_deep(tierd: Installation) -> None:
    """Fail if ``tierd verify --deep`` has a finding."""
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, f"{tierd.root.name}: {verified.output}"


def assert_no_errors(lab: SoakLab) -> None:
    """Fail if the daemon logged an error, or a malformed line."""
    lines = lab.daemon.log_file.read_text(errors="replace").splitlines()
    errors = [line for line in lines if not line.startswith("{") or '"level": "error"' in line]
    assert errors == [], f"the daemon logged {len(errors)} errors, first {errors[:3]}"


def _read_through(lab: SoakLab, tierd: Installation, partition: Partition, end: int) -> Sequence[Record]:
    """Read a partition until the reading begins at the log start and reaches ``end``, exclusive."""
    found: list[Record] = []
    said = ""

    def is_whole() -> bool:
        nonlocal said
        ended = tierd.ask("cat", _name(partition), "--json", "--committed")
        said = ended.stderr[-500:]
        found[:] = ended.json_lines() if ended.exit_code == 0 else []
        passing = ended.exit_code == 0 or any(refusal in ended.output for refusal in PASSING_REFUSALS)
        assert passing, f"{_name(partition)}: {ended.output[-2000:]}"
        if ended.exit_code or (found and found[0]["offset"] < lab.log_starts.get(partition, 0)):
            return False
        return end == 0 or bool(found and found[-1]["offset"] + 1 >= end)

    wait_until(
        is_whole,
        what=f"{_name(partition)} to be read from {lab.log_starts.get(partition, 0)} to {end}",
        deadline_s=READ_DEADLINE_S,
        last_seen=lambda: (len(found), found[:1], found[-1:], said),
        interval_s=0.5,
    )
    return found


def _assert_reading(lab: SoakLab, partition: Partition, found: Sequence[Record], *, end: int, what: str) -> None:
    lab.doubt_lost_markers()
    if partition[0] == COMPACTED:
        lab.traffic.keyed.assert_agrees(found, end=end, what=what)
        return
    start = lab.log_starts.get(partition, 0)
    assert not found or found[0]["offset"] >= start, f"{what}: deleted records below {start} are read"
    assert_agrees(found, lab.traffic.records.journal.of(*partition), start=start, end=end, what=what)
    lab.oracle.assert_agrees(found, partition, start=start, end=end, what=what)


def _stable_end(found: Sequence[Record], rolled: int) -> int:
    """Return the end of a remote reading, which stops before a transaction whose marker is not copied yet."""
    return min(rolled, found[-1]["offset"] + 1) if found else rolled


def _without_logs(lab: SoakLab, tierd: Installation) -> Installation:
    empty = lab.root / "no-logs"
    empty.mkdir(exist_ok=True)
    shutil.copy(lab.broker.log_dirs[0] / "meta.properties", empty)
    reader = lab.installation(f"reader-of-{tierd.root.name}", [empty])
    reader.configure({"metadata": {"backend": "sqlite", "sqlite": {"path": str(tierd.state_dir / "metadata.db")}}})
    return reader


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
