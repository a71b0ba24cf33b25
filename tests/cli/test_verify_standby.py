"""``tierd verify --standby`` over a tier that copy --once has filled, and log dirs that standbys may have."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.catalogues import catalogued, write_catalogue
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.log import NewRecord, encode_batch
from tierd.model import TopicIdPartition


@pytest.fixture
def standby(copied: Installation, log_dir: LogDirWriter, tmp_path: Path) -> Path:
    """Return a copy of the broker's log dir, as a standby has it."""
    return shutil.copytree(log_dir.path, tmp_path / "standby")


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def kinds(lines: list[dict[str, object]]) -> dict[object, object]:
    return {line["kind"]: line["severity"] for line in lines}


@pytest.mark.parametrize("options", [(), ("--deep",)])
def test_sound_copies_have_a_note_each(copied: Installation, standby: Path, options: tuple[str, ...]) -> None:
    ended = copied.tierd("verify", "--standby", str(standby), *options)
    assert ended.exit_code == 0, ended.output
    none, twelve = ("; 0 records are equal", "; 12 records are equal") if options else ("", "")
    audit = f"{standby}/audit-0: audit-0: offsets 0 to 0; the tier has none; 1 beyond the tier{none}"
    orders = "offsets 0 to 15; the tier has 0 to 11; both have 0 to 11; 4 beyond the tier"
    assert ended.stdout.splitlines() == [
        f"note standby-compared: {audit}",
        f"note standby-compared: {standby}/orders-0: orders-0: {orders}{twelve}",
        "nothing wrong",
    ]


def test_notes_have_their_numbers_in_json_in_both_shapes(copied: Installation, standby: Path) -> None:
    arguments = ("verify", "--deep", "--standby", str(standby), "orders-0")
    (line,) = copied.tierd(*arguments, "--json").json_lines()
    assert line == {
        "severity": "note",
        "kind": "standby-compared",
        "what": line["what"],
        "where": str(standby / "orders-0"),
        "remedy": "nothing to do",
        "artefact": "",
        "partition": "orders-0",
        "tier_start_offset": 0,
        "tier_end_offset": 12,
        "standby_start_offset": 0,
        "standby_end_offset": 16,
        "compared_records": 12,
    }
    assert copied.tierd(*arguments, "--json-object").json() == {"items": [line], "complete": True}


def test_damage_of_a_copy_exits_with_1_and_names_the_next_step(copied: Installation, standby: Path) -> None:
    flip_last_byte(min((standby / "orders-0").glob("*.log")))
    arguments = ("verify", "--deep", "--standby", str(standby), "orders-0")
    ended = copied.tierd(*arguments)
    assert ended.exit_code == 1, ended.output
    assert ended.stdout.splitlines()[-1].endswith(" findings")
    assert "  next: tierd inspect names all damage" in ended.stdout
    assert kinds(copied.tierd(*arguments, "--json").json_lines())["standby-damage"] == "error"
    assert copied.tierd("verify", "--standby", str(standby), "orders-0").exit_code == 0


def test_every_copy_is_compared_with_the_tier(copied: Installation, standby: Path, tmp_path: Path) -> None:
    second = shutil.copytree(standby, tmp_path / "second")
    flip_last_byte(min((second / "orders-0").glob("*.log")))
    arguments = ("--standby", str(standby), "--standby", str(second), "orders-0", "--deep", "--json")
    lines = copied.tierd("verify", *arguments).json_lines()
    found = {(Path(str(line["where"])).relative_to(tmp_path).parts[0], line["kind"]) for line in lines}
    assert {("standby", "standby-compared"), ("second", "standby-damage")} <= found
    assert ("standby", "standby-damage") not in found


def test_partition_that_no_log_dir_has_is_a_fault_where_it_is_asked_for_or_pushed(
    copied: Installation, standby: Path
) -> None:
    shutil.rmtree(standby / "orders-0")
    arguments = ("verify", "--standby", str(standby), "--json")
    missing = copied.tierd(*arguments)
    assert (missing.exit_code, kinds(missing.json_lines())["standby-missing"]) == (0, "note")
    named = copied.tierd(*arguments, "orders-0")
    assert (named.exit_code, kinds(named.json_lines())) == (1, {"standby-missing": "warning"})
    peer = {"node_id": 2, "address": "127.0.0.1:9406"}
    copied.configure({"push": {"listen": "127.0.0.1:9405", "peers": [peer], "standbys": [2], "topics": ["orders"]}})
    pushed = copied.tierd(*arguments)
    assert (pushed.exit_code, kinds(pushed.json_lines())["standby-missing"]) == (1, "warning")


@pytest.mark.parametrize(("written_ms", "severity"), [(0, "warning"), (1 << 42, "note")])
def test_copy_of_another_incarnation_is_told_by_its_age(
    copied: Installation, standby: Path, written_ms: int, severity: str
) -> None:
    shutil.rmtree(standby / "orders-0")
    LogDirWriter(standby).add_partition("orders", topic_id=UUID(int=77)).append([b"of the new topic"])
    for log in (standby / "orders-0").glob("*.log"):
        os.utime(log, (written_ms / 1000, written_ms / 1000))
    ended = copied.tierd("verify", "--standby", str(standby), "orders-0", "--json")
    assert ended.exit_code == 1, ended.output
    found = kinds(ended.json_lines())
    assert found == {"standby-other-topic": severity, "standby-missing": "warning", "standby-compared": "note"}


def no_topic_id(standby: Path) -> None:
    (standby / "orders-0" / "partition.metadata").unlink()


def other_cluster(standby: Path) -> None:
    LogDirWriter(standby, cluster_id="b3RoZXItY2x1c3Rlci1pZA")


def damaged_identity(standby: Path) -> None:
    (standby / "meta.properties").write_text("version=1\n")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (no_topic_id, {"standby-damage": "error", "standby-missing": "warning"}),
        (other_cluster, {"standby-other-cluster": "error", "standby-missing": "warning"}),
        (damaged_identity, {"standby-damage": "error", "standby-missing": "warning"}),
    ],
)
def test_log_dir_that_no_restore_would_join_is_found(
    copied: Installation, standby: Path, change: Callable[[Path], None], found: dict[str, str]
) -> None:
    change(standby)
    ended = copied.tierd("verify", "--standby", str(standby), "orders-0", "--json")
    assert (ended.exit_code, kinds(ended.json_lines())) == (1, found)


@pytest.mark.parametrize(("policy", "found"), [("compact", {}), ("delete", {"standby-hole": "error"})])
def test_policy_of_the_catalogue_decides_if_later_records_explain_what_a_copy_lacks(
    copied: Installation, log_dir: LogDirWriter, tmp_path: Path, policy: str, found: dict[str, str]
) -> None:
    writer = log_dir.add_partition("prices")
    for _ in range(4):
        writer.append_batch(encode_batch([NewRecord(b"key", b"value", 1)], base_offset=0), 1)
        writer.roll()
    log_dir.write_checkpoints()
    assert copied.tierd("copy", "--once").exit_code == 0
    partition = TopicIdPartition(writer.topic_id, "prices", 0)
    topic = catalogued(partition, replicas=(1,), config={"cleanup.policy": policy})
    asyncio.run(write_catalogue(copied.store_dir, topics=[topic]))
    standby = shutil.copytree(log_dir.path, tmp_path / "standby")
    for suffix in (".log", ".index", ".timeindex"):
        (standby / "prices-0" / f"{1:020d}{suffix}").write_bytes(b"")

    ended = copied.tierd("verify", "--deep", "--standby", str(standby), "prices-0", "--json")

    assert kinds(ended.json_lines()) == {"standby-compared": "note"} | found
    assert ended.exit_code == (1 if found else 0)


def test_metadata_comes_from_the_bucket_where_asked_for(copied: Installation, standby: Path) -> None:
    for file in copied.state_dir.glob("metadata*"):
        file.unlink()
    for options in ((), ("--from-bucket",)):
        ended = copied.tierd("verify", "--standby", str(standby), "orders-0", "--json", *options)
        assert ended.exit_code == 0, ended.output
        (line,) = ended.json_lines()
        assert line["tier_end_offset"] == (12 if options else 0)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (("--standby", "{}/gone"), 3, "name the log dir of a standby, or a copy of it"),
        (("--standby", "{}", "nowhere-0"), 2, "neither the tier nor a log dir of a standby knows nowhere-0"),
        (("--from-bucket",), 2, "--from-bucket belongs to --standby"),
    ],
)
def test_arguments_that_lead_nowhere_are_refused(
    copied: Installation, standby: Path, arguments: tuple[str, ...], exit_code: int, text: str
) -> None:
    ended = copied.tierd("verify", *(each.format(standby) for each in arguments))
    assert ended.exit_code == exit_code, ended.output
    assert text in " ".join(ended.stderr.split()).replace(" │ │ ", " ")


def test_comparison_writes_nothing_and_takes_no_lock(copied: Installation, standby: Path) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in standby.rglob("*")}

    before = files()
    assert copied.tierd("verify", "--deep", "--standby", str(standby)).exit_code == 0
    assert files() == before
