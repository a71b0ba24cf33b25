"""Mutual TLS between daemons: each side proves its node, and a refusal names its cause."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.replication.links.linked import (
    DEADLINE_S,
    LEADER,
    STANDBY,
    Nodes,
    RunningListener,
    append_request,
    loaded,
    raw_peer,
    running_listener,
)
from tierd.config import PushTlsSettings
from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.links.link_identity import LinkIdentity, certified_name
from tierd.replication.links.node_certificates import NodeCertificates, node_contexts
from tierd.replication.model.messages import PushApi

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
EXPIRED = timedelta(hours=-1)
OTHER = replace(LEADER, node_id=3)


async def problem_of(
    running: RunningListener, me: LinkIdentity, certificates: NodeCertificates, *, is_seen_there: bool = True
) -> tuple[str, str]:
    """Return the errors of both sides: of a connection that fails, and of the listener."""
    with capture_logs() as lines:
        with pytest.raises(PushLinkError) as caught:
            await running.link(me, certificates=certificates)
        await eventually(lambda: bool(lines) or not is_seen_there, what="a line of the listener")
    return str(caught.value), " ".join(str(line["problem"]) for line in lines)


@LOOPS
def test_expired_certificate_of_the_asking_node_is_named_on_both_sides(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        async with running_listener(certificates=await nodes.of(STANDBY)) as running:
            here, there = await problem_of(running, LEADER, await nodes.of(LEADER, valid_for=EXPIRED))
        assert "refused the certificate of this daemon, which has expired at 20" in here
        assert "certificate has expired" in there

    in_loop(main, loop_factory)


def in_loop(
    main: Callable[[], Coroutine[object, object, None]], factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Run a test in a loop of its kind."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(bounded())


@LOOPS
def test_certificate_of_another_authority_is_named_on_both_sides(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def main() -> None:
        nodes, strangers = Nodes(tmp_path / "a"), Nodes(tmp_path / "b", "stranger")
        stranger = await loaded(strangers.settings(strangers.certificate(LEADER), trusts=nodes))
        async with running_listener(certificates=await nodes.of(STANDBY)) as running:
            here, there = await problem_of(running, LEADER, stranger)
        assert "as it does with a certificate that it refuses" in here
        assert "unable to get local issuer certificate" in there

    in_loop(main, loop_factory)


async def test_expired_certificate_of_the_answering_node_is_named(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    async with running_listener(certificates=await nodes.of(STANDBY, valid_for=EXPIRED)) as running:
        here, there = await problem_of(running, LEADER, await nodes.of(LEADER))
    assert "node 2 at 127.0.0.1" in here
    assert "its certificate is refused: certificate has expired" in here
    assert "no connection" in there


async def test_answering_node_of_another_authority_is_named(tmp_path: Path) -> None:
    nodes, strangers = Nodes(tmp_path / "a"), Nodes(tmp_path / "b", "stranger")
    async with running_listener(certificates=await strangers.of(STANDBY)) as running:
        here, _ = await problem_of(running, LEADER, await nodes.of(LEADER))
    assert "its certificate is refused: self-signed certificate in certificate chain" in here


async def test_certificate_for_another_host_is_named(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    elsewhere = nodes.authority.issue("elsewhere", hosts=("198.51.100.7",), uris=(str(STANDBY.name),))
    async with running_listener(certificates=await loaded(nodes.settings(elsewhere))) as running:
        here, _ = await problem_of(running, LEADER, await nodes.of(LEADER))
    assert "IP address mismatch" in here


@pytest.mark.spec("push-replication 94")
async def test_certificate_of_node_2_that_claims_to_be_leader_1_gets_error_31_and_is_closed(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    standby, node_2 = replace(STANDBY, node_id=9), replace(LEADER, node_id=2)
    async with running_listener(certificates=await nodes.of(standby)) as running:
        here, there = await problem_of(running, LEADER, await nodes.of(node_2))
        assert "error 31, the certificate of this daemon is for another node or cluster" in here
        assert "tierd://cluster-A/2 says to be tierd://cluster-A/1" in there
        await eventually(lambda: running.listener.statistics().connections == 0, what="the end of the connection")
        assert running.standby.peers == []


async def test_certificate_of_another_cluster_gets_error_31(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    async with running_listener(certificates=await nodes.of(STANDBY)) as running:
        here, _ = await problem_of(running, LEADER, await nodes.of(replace(LEADER, cluster_id="B")))
    assert "error 31" in here


@pytest.mark.parametrize("uris", [(), ("https://example.com/1",), ("tierd://cluster-A/1", "tierd://cluster-A/3")])
async def test_certificate_that_names_no_node_or_several_is_refused(uris: tuple[str, ...], tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    certificate = nodes.authority.issue("unnamed", hosts=("127.0.0.1",), uris=uris)
    async with running_listener(certificates=await nodes.of(STANDBY)) as running:
        _, there = await problem_of(running, LEADER, await loaded(nodes.settings(certificate)))
    assert "has to name one node" in there


async def test_answering_node_with_the_certificate_of_another_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    async with running_listener(certificates=await nodes.of(OTHER)) as running:
        here, _ = await problem_of(running, LEADER, await nodes.of(LEADER), is_seen_there=False)
    assert "has the certificate of tierd://cluster-A/3, and tierd://cluster-A/2 was expected" in here


async def test_peer_without_a_certificate_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    context = ssl.create_default_context(cafile=str(nodes.authority.ca_file))
    async with running_listener(certificates=await nodes.of(STANDBY)) as running:
        with capture_logs() as lines:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
            with suppress(OSError):
                assert not await reader.read(1)
            writer.transport.abort()
            await eventually(lambda: bool(lines), what="a line of the listener")
    assert "peer did not return a certificate" in lines[0]["problem"]


async def test_peer_without_tls_is_refused_where_tls_is_required(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    async with running_listener(certificates=await nodes.of(STANDBY)) as running, raw_peer(running.port) as peer:
        await peer.say(LEADER.hello(PushApi))
        assert await peer.is_closed()
        await eventually(lambda: running.listener.statistics().refused == 1, what="the refusal")


async def test_tls_towards_a_port_without_it_is_named(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    async with running_listener() as running:
        here, _ = await problem_of(running, LEADER, await nodes.of(LEADER))
    assert "node 2 at 127.0.0.1" in here


async def test_tls_of_a_version_that_is_too_old_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    contexts = node_contexts(nodes.settings(nodes.certificate(LEADER), min_version="TLSv1.2"))
    assert contexts.client.minimum_version is ssl.TLSVersion.TLSv1_2
    contexts.client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running_listener(certificates=await nodes.of(STANDBY)) as running:
        with capture_logs() as lines:
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", running.port, ssl=contexts.client)
            await eventually(lambda: bool(lines), what="a line of the listener")
    assert "unsupported protocol" in lines[0]["problem"]


async def test_renewed_certificate_is_used_by_the_next_connection_and_the_open_one_stays(tmp_path: Path) -> None:
    nodes, clock = Nodes(tmp_path), ManualClock()
    settings = nodes.settings(nodes.certificate(STANDBY))
    certificates = NodeCertificates(lambda: settings, clock=clock)
    await certificates.load()
    leader = await nodes.of(LEADER)
    async with running_listener(certificates=certificates) as running:
        first = await running.link(certificates=leader)
        before = first.connection.transport.get_extra_info("peercert")["serialNumber"]
        nodes.certificate(STANDBY)
        clock.advance(1.0)
        second = await running.link(certificates=leader)
        assert second.connection.transport.get_extra_info("peercert")["serialNumber"] != before
        await first.ask(append_request(b"x"), 5.0)
        for link in (first, second):
            await link.close()


async def test_damaged_certificate_leaves_the_former_one_in_force(tmp_path: Path) -> None:
    nodes, clock = Nodes(tmp_path), ManualClock()
    settings = nodes.settings(nodes.certificate(STANDBY))
    certificates = NodeCertificates(lambda: settings, clock=clock)
    await certificates.load()
    former = await certificates.latest()
    assert settings.certificate_file is not None
    settings.certificate_file.write_text("half a certificate")
    with capture_logs() as lines:
        for _ in range(3):
            clock.advance(1.0)
            assert await certificates.latest() is former
    assert certificates.failed_reloads == 1
    assert [line["event"] for line in lines] == ["push_certificate_unusable"]


@pytest.mark.parametrize("file", ["certificate_file", "key_file", "ca_file"])
def test_unusable_file_is_named(file: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    settings = nodes.settings(nodes.certificate(LEADER))
    broken = tmp_path / "broken.pem"
    broken.write_text("no PEM")
    with pytest.raises(PushLinkError, match=f"{file} .*broken.pem") as caught:
        node_contexts(settings.model_copy(update={file: broken}))
    assert caught.value.remedy


def test_password_of_a_key_is_in_no_message(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    certificate = nodes.certificate(LEADER, password="s3cret-right")
    node_contexts(nodes.settings(certificate, key_password="s3cret-right"))
    with pytest.raises(PushLinkError) as caught:
        node_contexts(nodes.settings(certificate, key_password="s3cret-wrong"))
    assert "s3cret" not in str(caught.value)


def test_settings_without_certificates_are_refused() -> None:
    with pytest.raises(PushLinkError, match="no certificate"):
        node_contexts(PushTlsSettings())


@pytest.mark.parametrize(
    "uri",
    [
        "tierd://c/01",
        "tierd://c/-1",
        "tierd://c/",
        "tierd:///1",
        "tierd://c/1/2",
        "tierd://c/1?x",
        "TIERD://c/1",
        "c/1",
    ],
)
def test_uri_that_is_no_name_of_a_node_is_passed_over(uri: str) -> None:
    with pytest.raises(PushLinkError):
        certified_name({"subjectAltName": (("URI", uri),)})
    both = (("URI", uri), ("DNS", "tierd://c/5"), ("URI", "tierd://c/4"))
    assert str(certified_name({"subjectAltName": both})) == "tierd://c/4"
