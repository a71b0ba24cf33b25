"""docs/push.md: two daemons, a comparison and a restore by the commands that the page prints, and its examples."""

import re
import shlex
import ssl
import textwrap
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import run_tierd
from tests.scenarios.installation import Installation
from tests.scenarios.printed_commands import printed_commands, run_commands
from tests.services.ports import free_port
from tierd.config import PushTlsSettings
from tierd.replication.links.link_identity import NodeName, certified_name
from tierd.replication.links.node_certificates import node_contexts

_PAGE = Path(__file__).parents[2] / "docs" / "push.md"
_STANDBYS = Path(__file__).parents[2] / "daemon" / "tierd" / "tiering" / "standbys"


def examples() -> list[str]:
    """Return the configurations that the page prints."""
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", _PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in blocks if "push:" in block]


def test_commands_of_the_page_replicate_compare_and_restore(tmp_path: Path) -> None:
    script = printed_commands(_PAGE, "Try it").replace("/tmp/tierd-push", str(tmp_path / "push"))
    for port in (9406, 9407):
        script = script.replace(str(port), str(free_port()))
    script = script.replace("127.0.0.1:941$node", "127.0.0.1:0")
    output = run_commands(script)
    assert "push: 1 partitions to nodes 2, 1 of 1 copies in sessions" in output
    assert "standby: 1 copies, 1 in sessions, 0 records behind" in output
    assert f"  joined: offsets 15500 to 19999 from {tmp_path}/push/node-2/copies/orders-0" in output
    assert re.search(r"^19999\t\S+\tnull\t20000$", output, flags=re.MULTILINE)


def test_commands_of_the_page_make_a_certificate_for_each_node(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    run_commands(printed_commands(_PAGE, "Set it up").replace("/tmp/tierd-push-certs", str(folder)))
    for node in (1, 2):
        files = {"certificate_file": folder / f"node-{node}.pem", "key_file": folder / f"node-{node}-key.pem"}
        node_contexts(PushTlsSettings(**files, ca_file=folder / "ca.pem"))
        decoded: dict[str, Any] = ssl._ssl._test_decode_cert(str(files["certificate_file"]))  # type: ignore[attr-defined]
        assert certified_name(decoded) == NodeName("demo-cluster", node)
        assert ("DNS", f"tierd-{node}.example.com") in decoded["subjectAltName"]


@pytest.mark.parametrize("number", range(3))
def test_examples_of_the_page_are_valid_configurations(tmp_path: Path, number: int) -> None:
    assert len(examples()) == 3
    config = tmp_path / "tierd.yaml"
    config.write_text(f"state_dir: {tmp_path}\n{examples()[number]}")
    checked = run_tierd("check-config", "--config", str(config))
    assert checked.exit_code == 0, checked.output


def test_comparisons_and_restores_of_the_page_run(tmp_path: Path) -> None:
    log_dir, copies = LogDirWriter(tmp_path / "kafka"), LogDirWriter(tmp_path / "copies")
    for each in (log_dir, copies):
        writer = each.add_partition("orders", topic_id=UUID(int=7))
        for values in ([b"a", b"b"], [b"c"]):
            writer.append(values)
            writer.roll()
        writer.append([b"d"])
        each.write_checkpoints()
    tierd = Installation(tmp_path / "tierd", [log_dir.path])
    assert tierd.tierd("copy", "--once").exit_code == 0
    places = {"/var/lib/kafka/data": str(log_dir.path), "/srv/standby": str(copies.path)}
    commands = [
        shlex.split(line)[1:]
        for heading in ("Compare the copies", "A host is lost")
        for line in printed_commands(_PAGE, heading).splitlines()
        if line.strip()
    ]
    assert [each[0] for each in commands] == ["verify", "verify", "restore", "restore"]
    for arguments in commands:
        done = tierd.tierd(*(places.get(each, each) for each in arguments))
        assert done.exit_code == 0, f"{arguments}: {done.output}"


def test_the_page_lists_every_finding_about_a_copy() -> None:
    source = "".join(file.read_text() for file in _STANDBYS.glob("*.py"))
    source += (_STANDBYS.parents[1] / "app" / "restore" / "standby_verify.py").read_text()
    kinds = set(re.findall(r'"(standby-[a-z-]+)"', source))
    assert len(kinds) == 14
    assert [kind for kind in kinds if f"`{kind}`" not in _PAGE.read_text()] == []


def test_the_page_names_every_fault() -> None:
    text = _PAGE.read_text().partition("## When something is wrong")[2]
    assert {int(number) for number in re.findall(r"\bF(\d+)\b", text)} == set(range(1, 33))
