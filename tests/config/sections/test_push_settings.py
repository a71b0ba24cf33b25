"""Section push: peers, standbys, certificates, and the faults that the file alone tells."""

from pathlib import Path

import pytest

from tests.config.test_loading import MINIMAL, faults
from tierd.config import TierdConfig, load_config

PEERS = "peers: [{node_id: 2, address: 'localhost:9406'}, {node_id: 3, address: '[::1]:9406'}]"
HERE = f"node_id: 1, listen: 'localhost:9406', {PEERS}"
TLS = "tls: {certificate_file: /c.pem, key_file: /k.pem, ca_file: /a.pem}"


def load(tmp_path: Path, section: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(f"{MINIMAL}push: {{{section}}}\n")
    return load_config(path, {})


def found(tmp_path: Path, section: str) -> list[str]:
    """Return the faults of a section, each without its place."""
    return [fault.split(": ", 1)[1] for fault in faults(tmp_path, f"{MINIMAL}push: {{{section}}}\n")]


def test_push_replication_is_off_by_default(tmp_path: Path) -> None:
    push = load(tmp_path, "").push
    assert not push.is_configured
    assert not push.is_leader
    assert not push.is_standby


def test_leader_sends_the_topics_that_match_but_no_internal_ones(tmp_path: Path) -> None:
    push = load(tmp_path, f"{HERE}, topics: ['orders', '.*-events', '__.*'], standbys: [2, 3]").push
    assert push.is_leader
    assert [push.wants(topic) for topic in ("orders", "orders2", "user-events", "__consumer_offsets")] == [
        True,
        False,
        True,
        False,
    ]
    assert load(tmp_path, f"{HERE}, topics: ['__.*'], standbys: [2], internal_topics: true").push.wants("__state")


def test_standby_keeps_the_copies_of_its_leaders(tmp_path: Path) -> None:
    push = load(tmp_path, f"{HERE}, standby: {{log_dir: /srv/standby, leaders: [2], flush: always}}").push
    assert push.is_standby
    assert not push.is_leader
    assert (push.peers[1].host, push.peers[1].port) == ("::1", 9406)


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("topics: [a], standbys: [2]", "push.standbys[0]: 2 is no peer: add it to push.peers"),
        (f"{PEERS}, topics: [a], standbys: [2]", "push.topics: needs push.listen"),
        (f"{PEERS}, standby: {{log_dir: /srv/s}}", "push.standby.log_dir: needs push.listen"),
        (f"{HERE}, topics: [a]", "push.topics: needs push.standbys"),
        (f"{HERE}, standbys: [2]", "push.standbys: needs push.topics"),
        (f"{HERE}, standby: {{log_dir: /srv/s, leaders: [4]}}", "push.standby.leaders[0]: 4 is no peer"),
        ("node_id: 2, peers: [{node_id: 2, address: 'localhost:1'}]", "push.peers[0].node_id: 2 is the node_id of"),
        ("listen: '0.0.0.0:9406'", "push.listen: 0.0.0.0:9406 without push.tls on another interface than loopback"),
        ("peers: [{node_id: 2, address: 'b:1'}]", "push.peers[0].address: b:1 without push.tls on another interface"),
        (
            "tls: {key_file: /k.pem}",
            "push.tls.certificate_file: certificate_file, key_file and ca_file belong",
        ),
        ("session: {unacked_max: 20s}", "push.session.unacked_max: must be at most half of lag_max"),
        ("session: {keepalive: 4s}", "push.session.idle_max: must be more than three times keepalive"),
        ("buffer: {max_bytes: 16MiB}", "push.buffer.max_bytes: must be at least twice push.request.max_bytes"),
        ("buffer: {session_max_bytes: 1GiB}", "push.buffer.session_max_bytes: must be at most push.buffer.max_bytes"),
        ("request: {partition_max_bytes: 16MiB}", "push.request.partition_max_bytes: must be at most"),
        (f"{HERE}, standby: {{log_dir: /var/lib/kafka}}", "push.standby.log_dir: /var/lib/kafka holds the log dir"),
        (f"{HERE}, standby: {{log_dir: /var/lib/kafka/data/s}}", "is inside the log dir /var/lib/kafka/data"),
    ],
)
def test_setting_that_cannot_work_is_a_fault(tmp_path: Path, section: str, fault: str) -> None:
    assert any(fault in each for each in found(tmp_path, section)), found(tmp_path, section)


def test_other_hosts_need_certificates_or_an_explicit_word(tmp_path: Path) -> None:
    section = "listen: '0.0.0.0:9406', peers: [{node_id: 2, address: 'b:1'}]"
    assert load(tmp_path, f"{section}, {TLS}").push.tls.is_configured
    assert load(tmp_path, f"{section}, allow_plaintext: true").push.is_configured
