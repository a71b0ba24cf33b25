"""ListenerCertificates: real handshakes, certificates of clients, and files that change under a running listener."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.security.canary import SECRET, rendered, reveals
from tests.services.certificates import Authority, Certificate
from tierd.config import EndpointTlsSettings
from tierd.errors import ListenError
from tierd.serve.kafka.access.client_certificates import certificate_principal
from tierd.serve.kafka.access.listener_certificates import ListenerCertificates, certificate_end

HOSTS = ("127.0.0.1",)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "authority")


@pytest.fixture
def server(authority: Authority) -> Certificate:
    return authority.issue("server", hosts=HOSTS)


def settings(server: Certificate, **more: object) -> EndpointTlsSettings:
    return EndpointTlsSettings.model_validate(
        {"certificate_file": server.cert_file, "key_file": server.key_file, **more}
    )


async def loaded(tls: EndpointTlsSettings, clock: FakeClock | None = None) -> ListenerCertificates:
    certificates = ListenerCertificates(lambda: tls, clock=clock or FakeClock())
    await certificates.load()
    return certificates


def client_context(authority: Authority, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if own is not None:
        context.load_cert_chain(own.cert_file, own.key_file)
    return context


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve the principal of each client, or ``-`` without a certificate."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.write(certificate_principal(certificate).encode() if certificate else b"-")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer_to(port: int, context: ssl.SSLContext) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


async def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """Return True if the connection fails or ends without an answer: TLS 1.3 looks at the client's certificate late."""
    try:
        return not await answer_to(port, context)
    except (ssl.SSLError, ConnectionError):
        return True


async def served_serial(certificates: ListenerCertificates, client: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a new connection sees."""
    async with listening(await certificates.latest()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        serial = writer.get_extra_info("peercert")["serialNumber"]
        await reader.read()
        writer.close()
        return int(serial, 16)


class TestClients:
    async def test_client_that_trusts_the_authority_connects(self, authority: Authority, server: Certificate) -> None:
        async with listening(await (await loaded(settings(server))).latest()) as port:
            assert await answer_to(port, client_context(authority)) == "-"

    @pytest.mark.parametrize("demand", ["requested", "required"])
    async def test_client_with_a_certificate_has_its_subject(
        self, authority: Authority, server: Certificate, demand: str
    ) -> None:
        tls = settings(server, client_ca_file=authority.ca_file, client_certificates=demand)
        async with listening(await (await loaded(tls)).latest()) as port:
            assert await answer_to(port, client_context(authority, authority.issue("etl"))) == "User:CN=etl"

    async def test_client_without_the_required_certificate_is_refused(
        self, authority: Authority, server: Certificate
    ) -> None:
        tls = settings(server, client_ca_file=authority.ca_file, client_certificates="required")
        async with listening(await (await loaded(tls)).latest()) as port:
            assert await is_refused(port, client_context(authority))

    @pytest.mark.parametrize("demand", ["requested", "required"])
    async def test_certificate_of_another_authority_is_refused(
        self, authority: Authority, server: Certificate, tmp_path: Path, demand: str
    ) -> None:
        foreign = Authority(tmp_path / "foreign", "foreign").issue("etl")
        tls = settings(server, client_ca_file=authority.ca_file, client_certificates=demand)
        async with listening(await (await loaded(tls)).latest()) as port:
            assert await is_refused(port, client_context(authority, foreign))

    async def test_protocols_older_than_tls_1_2_are_refused(self, authority: Authority, server: Certificate) -> None:
        context = await (await loaded(settings(server))).latest()

        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION


class TestFaults:
    async def test_key_with_a_password_opens_with_it_alone(self, authority: Authority) -> None:
        closed = authority.issue("closed", hosts=HOSTS, password=SECRET)

        await loaded(settings(closed, key_password=SECRET))
        for wrong in ({}, {"key_password": f"x{SECRET}"}):
            with pytest.raises(ListenError, match="cannot be used") as caught:
                await loaded(settings(closed, **wrong))
            assert not reveals(rendered(caught.value))

    async def test_files_that_do_not_belong_together_are_named(self, authority: Authority, server: Certificate) -> None:
        other = authority.issue("other")

        with pytest.raises(ListenError, match=f"certificate_file {server.cert_file} with key_file {other.key_file}"):
            await loaded(settings(Certificate(server.cert_file, other.key_file, server.bundle)))

    async def test_missing_files_are_named(self, server: Certificate, tmp_path: Path) -> None:
        missing = tmp_path / "missing.pem"

        with pytest.raises(ListenError, match=str(missing)):
            await loaded(settings(Certificate(missing, server.key_file, missing)))
        with pytest.raises(ListenError, match=f"client_ca_file {missing}"):
            await loaded(settings(server, client_ca_file=missing))

    async def test_settings_without_a_certificate_are_refused(self) -> None:
        with pytest.raises(ListenError, match=r"kafka\.tls has no certificate"):
            await loaded(EndpointTlsSettings())

    def test_end_of_a_certificate_is_read_from_its_file(self, server: Certificate, tmp_path: Path) -> None:
        assert timedelta(days=1) < certificate_end(server.cert_file) - datetime.now(UTC) < timedelta(days=3)
        for content in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            (tmp_path / "c.pem").write_bytes(content)
            with pytest.raises(ListenError):
                certificate_end(tmp_path / "c.pem")


class TestChanges:
    async def test_next_handshake_uses_a_certificate_that_was_replaced(
        self, authority: Authority, server: Certificate
    ) -> None:
        clock, client = FakeClock(), client_context(authority)
        certificates = await loaded(settings(server), clock)
        before = await served_serial(certificates, client)

        authority.issue("server", hosts=HOSTS)
        clock.advance(1.0)

        assert await served_serial(certificates, client) != before

    async def test_half_replaced_files_leave_the_former_certificate_in_force(
        self, authority: Authority, server: Certificate
    ) -> None:
        clock, client = FakeClock(), client_context(authority)
        certificates = await loaded(settings(server), clock)
        before = await served_serial(certificates, client)
        new = authority.issue("new", hosts=HOSTS)

        server.cert_file.write_bytes(new.cert_file.read_bytes())
        clock.advance(1.0)
        assert await served_serial(certificates, client) == before
        clock.advance(1.0)
        assert await served_serial(certificates, client) == before
        assert certificates.failed_reloads == 1
        assert certificates.problem

        server.key_file.write_bytes(new.key_file.read_bytes())
        clock.advance(1.0)
        assert await served_serial(certificates, client) != before
        assert certificates.problem == ""

    async def test_file_that_disappears_leaves_the_former_certificate_in_force(
        self, authority: Authority, server: Certificate
    ) -> None:
        clock, client = FakeClock(), client_context(authority)
        certificates = await loaded(settings(server), clock)
        server.cert_file.unlink()
        clock.advance(1.0)

        assert await served_serial(certificates, client)

    async def test_files_are_looked_at_once_a_second_at_most(self, server: Certificate) -> None:
        clock = FakeClock()
        certificates = await loaded(settings(server), clock)
        first = await certificates.latest()
        server.cert_file.touch()

        assert await certificates.latest() is first
        clock.advance(1.0)
        assert await certificates.latest() is not first

    async def test_settings_of_a_reload_are_used_at_the_next_handshake(
        self, authority: Authority, server: Certificate
    ) -> None:
        clock, client = FakeClock(), client_context(authority)
        in_force = [settings(server)]
        certificates = ListenerCertificates(lambda: in_force[-1], clock=clock)
        await certificates.load()
        before = await served_serial(certificates, client)

        in_force.append(settings(authority.issue("other", hosts=HOSTS)))
        clock.advance(1.0)

        assert await served_serial(certificates, client) != before
