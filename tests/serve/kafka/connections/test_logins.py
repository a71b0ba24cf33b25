"""Logins over real connections: handshakes, tokens, sessions that end, and certificates of clients."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.types import GroupId
from kio.static.protocol import RequestPayload, ResponsePayload
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.serve.kafka.connections.running_endpoint import PLAIN, FrameClient, RunningEndpoint, running_endpoint
from tests.serve.kafka.connections.test_requests import API_VERSIONS, GROUPS, LIST_GROUPS, LISTED, VERSIONS, answering
from tests.serve.kafka.kio_messages import sample, sized
from tests.services.certificates import Authority
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.login import Login, LoginRefusedError, LoginStep
from tierd.serve.kafka.request_context import Handler, RequestContext

HANDSHAKE, AUTHENTICATE = 17, 36


@dataclass
class TwoTokens:
    """Login by two tokens: ``hello``, and then a name."""

    lifetime_ms: int
    tokens: list[bytes] = field(default_factory=list)

    async def step(self, token: bytes) -> LoginStep:
        """Take the next token; the name ``mallory`` is refused, and ``sloth`` is never answered."""
        await asyncio.sleep(0)
        self.tokens.append(token)
        if len(self.tokens) == 1:
            return LoginStep(b"who?")
        if token == b"sloth":
            await asyncio.Event().wait()
        if token == b"mallory":
            raise LoginRefusedError("no login for this name")
        return LoginStep(b"welcome", f"User:{token.decode()}", self.lifetime_ms)


@dataclass
class Methods:
    """Logins of a listener, by two mechanisms that are the same."""

    lifetime_ms: int = 0
    begun: list[str] = field(default_factory=list)
    mechanisms: Sequence[str] = ("TWO", "OTHER")

    def begin(self, mechanism: str, *, peer: str) -> Login | None:
        """Begin a login."""
        self.begun.append(peer)
        return TwoTokens(self.lifetime_ms) if mechanism in self.mechanisms else None


def listener(lifetime_ms: int = 0) -> Any:  # noqa: ANN401
    return replace(PLAIN, logins=Methods(lifetime_ms))


async def naming(request: RequestPayload, context: RequestContext) -> ResponsePayload:
    """Answer with the principal as the name of a group."""
    group = replace(sample(ListGroupsResponse).groups[0], group_id=GroupId(context.principal))
    return replace(LISTED, groups=(group,))


HANDLERS: dict[int, Handler] = {LIST_GROUPS: naming, API_VERSIONS: answering(VERSIONS)}


async def handshake(client: FrameClient, mechanism: str = "TWO", *, version: int = 1) -> Any:  # noqa: ANN401
    request: Any = load_request_schema(HANDSHAKE, version)
    return await client.ask(request(mechanism=mechanism), load_response_schema(HANDSHAKE, version))


async def authenticate(client: FrameClient, token: bytes, *, version: int = 2) -> Any:  # noqa: ANN401
    request: Any = load_request_schema(AUTHENTICATE, version)
    return await client.ask(request(auth_bytes=token), load_response_schema(AUTHENTICATE, version))


async def principal(client: FrameClient) -> str:
    answer = await client.ask(GROUPS, ListGroupsResponse)
    assert isinstance(answer, ListGroupsResponse)
    return answer.groups[0].group_id


async def logged_in(
    running: RunningEndpoint, name: bytes = b"alice", *, version: int = 2, mechanism: str = "TWO"
) -> FrameClient:
    client = await running.connect()
    await handshake(client, mechanism)
    await authenticate(client, b"hello", version=version)
    assert (await authenticate(client, name, version=version)).error_code is ErrorCode.none
    return client


async def test_client_logs_in_and_is_known_by_its_principal() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()
        assert await client.ask(sample(ApiVersionsRequest), ApiVersionsResponse) == VERSIONS

        shaken = await handshake(client)
        first = await authenticate(client, b"hello")
        last = await authenticate(client, b"alice")

        assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.none, ("TWO", "OTHER"))
        assert (first.error_code, first.auth_bytes) == (ErrorCode.none, b"who?")
        assert (last.auth_bytes, last.session_lifetime) == (b"welcome", timedelta(0))
        assert await principal(client) == "User:alice"
    assert {each.principal for each in running.records.requests} == {"User:ANONYMOUS", "User:alice"}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_the_authentication_logs_in(version: int) -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        assert await principal(await logged_in(running, version=version)) == "User:alice"


async def test_tokens_without_heads_follow_the_first_version_of_the_handshake() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()
        await handshake(client, version=0)
        await client.send_bytes(sized(b"hello"))
        assert await client.receive() == sized(b"who?")
        await client.send_bytes(sized(b"alice"))
        assert await client.receive() == sized(b"welcome")

        assert await principal(client) == "User:alice"


async def test_refused_token_without_a_head_closes_the_connection() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()
        await handshake(client, version=0)
        await client.send_bytes(sized(b"hello") + sized(b"mallory"))
        assert await client.receive() == sized(b"who?")

        assert await client.is_closed()


async def test_refused_login_is_answered_and_closes_the_connection() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()
        await handshake(client)
        await authenticate(client, b"hello")

        answer = await authenticate(client, b"mallory")

        assert (answer.error_code, answer.error_message) == (
            ErrorCode.sasl_authentication_failed,
            "no login for this name",
        )
        assert await client.is_closed()
        await eventually(lambda: running.statistics().closed_by_fault == 1, what="the fault")


async def test_unknown_mechanism_is_answered_with_those_that_are_offered() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()

        answer = await handshake(client, "GSSAPI")

        assert (answer.error_code, answer.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, ("TWO", "OTHER"))
        assert await client.is_closed()


async def test_token_before_a_handshake_is_refused() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await running.connect()

        assert (await authenticate(client, b"hello")).error_code is ErrorCode.illegal_sasl_state
        assert await client.is_closed()


async def test_request_before_the_login_closes_the_connection() -> None:
    with capture_logs() as logs:
        async with running_endpoint(HANDLERS, listener()) as running:
            client = await running.connect()
            await client.send(GROUPS)

            assert await client.is_closed()

    assert [entry["problem"] for entry in logs] == ["ListGroups before the client has logged in"]


async def test_frame_before_the_login_is_small() -> None:
    with capture_logs() as logs:
        async with running_endpoint(HANDLERS, listener()) as running:
            client = await running.connect()
            await client.send_bytes((65_537).to_bytes(4, "big"))

            assert await client.is_closed()

    assert [entry["problem"] for entry in logs] == [
        "a request of 65537 bytes before its login: 10 to 65536 are allowed"
    ]


async def test_client_without_a_login_is_closed_after_its_deadline_whatever_it_sends() -> None:
    limits = EndpointLimits(login_timeout_s=30)
    async with running_endpoint(HANDLERS, listener(), limits=limits) as running:
        client = await running.connect()
        for _ in range(3):
            await eventually(lambda: running.clock.sleeping > 0, what="the watch")
            running.clock.advance(9)
            await client.ask(sample(ApiVersionsRequest), ApiVersionsResponse)
        await eventually(lambda: running.clock.sleeping > 0, what="the watch")
        running.clock.advance(3)

        assert await client.is_closed()


async def test_clients_in_the_middle_of_their_logins_give_way_to_new_ones() -> None:
    limits = EndpointLimits(connections=3, connections_per_peer=3)
    async with running_endpoint(HANDLERS, listener(), limits=limits) as endpoint:
        known = await logged_in(endpoint)
        half_open = [await endpoint.connect() for _ in range(2)]
        request: Any = load_request_schema(AUTHENTICATE, 2)
        for each in half_open:
            await handshake(each)
            await authenticate(each, b"hello")
            await each.send(request(auth_bytes=b"sloth"))
        newcomers = [await logged_in(endpoint, name) for name in (b"bob", b"carol")]
        assert [await each.is_closed() for each in half_open] == [True, True]
        assert [await principal(each) for each in (known, *newcomers)] == ["User:alice", "User:bob", "User:carol"]


async def test_session_ends_after_its_lifetime_unless_the_client_logs_in_again() -> None:
    async with running_endpoint(HANDLERS, listener(lifetime_ms=60_000)) as running:
        client = await running.connect()
        await handshake(client)
        await authenticate(client, b"hello")
        assert (await authenticate(client, b"alice")).session_lifetime == timedelta(minutes=1)
        running.clock.advance(59)
        await handshake(client)
        assert await principal(client) == "User:alice"  # the former login is good until its end
        await authenticate(client, b"hello")
        await authenticate(client, b"alice")
        running.clock.advance(59)
        assert await principal(client) == "User:alice"

        running.clock.advance(1)

        await client.send(GROUPS)
        assert await client.is_closed()


async def test_client_whose_session_has_ended_may_log_in_again() -> None:
    async with running_endpoint(HANDLERS, listener(lifetime_ms=60_000)) as running:
        client = await logged_in(running)
        running.clock.advance(61)

        await handshake(client)
        await authenticate(client, b"hello")
        await authenticate(client, b"alice")

        assert await principal(client) == "User:alice"


async def test_connection_cannot_become_one_of_another_principal() -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await logged_in(running)
        await handshake(client)
        await authenticate(client, b"hello")

        answer = await authenticate(client, b"bob")

        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert await client.is_closed()


@pytest.mark.parametrize("first", ["TWO", "OTHER"])
async def test_login_is_renewed_by_its_own_mechanism_only(first: str) -> None:
    async with running_endpoint(HANDLERS, listener()) as running:
        client = await logged_in(running, mechanism=first)
        await handshake(client, first)
        await authenticate(client, b"hello")
        await authenticate(client, b"alice")
        second = "OTHER" if first == "TWO" else "TWO"
        assert (await handshake(client, second)).error_code is ErrorCode.none

        answer = await authenticate(client, b"hello")

        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message == f"a login by {first} cannot be renewed by {second}"
        assert await client.is_closed()


async def test_handshake_at_a_listener_without_logins_is_refused_and_the_connection_goes_on() -> None:
    async with running_endpoint(HANDLERS) as running:
        client = await running.connect()

        assert (await handshake(client)).error_code is ErrorCode.illegal_sasl_state
        assert await principal(client) == "User:ANONYMOUS"


class TestCertificates:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path / "pki", "authority")
        server = authority.issue("server", hosts=("localhost",))
        own = authority.issue("etl")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(server.cert_file, server.key_file)
        self.server.load_verify_locations(authority.ca_file)
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.anonymous = ssl.create_default_context(cafile=str(authority.ca_file))
        self.known = ssl.create_default_context(cafile=str(authority.ca_file))
        self.known.load_cert_chain(own.cert_file, own.key_file)

    async def context(self) -> ssl.SSLContext:
        await asyncio.sleep(0)
        return self.server

    async def test_certificate_names_the_principal(self) -> None:
        async with running_endpoint(HANDLERS, replace(PLAIN, tls=self.context)) as running:
            assert await principal(await running.connect(tls=self.known)) == "User:CN=etl"
            assert await principal(await running.connect(tls=self.anonymous)) == "User:ANONYMOUS"

    async def test_login_names_the_principal_even_with_a_certificate(self) -> None:
        async with running_endpoint(HANDLERS, replace(listener(), tls=self.context)) as running:
            client = await running.connect(tls=self.known)
            await handshake(client)
            await authenticate(client, b"hello")
            await authenticate(client, b"alice")

            assert await principal(client) == "User:alice"

    async def test_client_that_speaks_no_tls_is_refused_with_one_line(self) -> None:
        with capture_logs() as logs:
            async with running_endpoint(HANDLERS, replace(PLAIN, tls=self.context)) as running:
                client = await running.connect()
                await client.send(GROUPS)
                async with asyncio.timeout(60):
                    await client.reader.read()  # an alert, and the end

        assert [entry["event"] for entry in logs] == ["client_refused"]
        assert "no TLS with the client" in logs[0]["problem"]

    async def test_client_that_does_not_end_its_handshake_is_closed(self) -> None:
        limits = EndpointLimits(login_timeout_s=30)
        async with running_endpoint(HANDLERS, replace(PLAIN, tls=self.context), limits=limits) as running:
            client = await running.connect()
            await client.send_bytes(b"\x16\x03\x01\x02\x00")
            await eventually(lambda: running.clock.sleeping > 0, what="the watch")
            running.clock.advance(30)

            assert await client.is_closed()
