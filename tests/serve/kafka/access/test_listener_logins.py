"""ListenerLogins: whole logins by each mechanism, the wait after a failure, and what is never repeated."""

import asyncio
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.log_capture import captured_log
from tests.fakes.manual_clock import ManualClock
from tests.security.canary import SECRET, rendered, reveals
from tests.serve.kafka.access.clients import PASSWORD, AiokafkaScram, sasl, verifiers
from tierd.clock import Clock
from tierd.serve.kafka.access.listener_logins import ListenerLogins, LoginFailures, new_nonce
from tierd.serve.kafka.access.user_verifiers import UserVerifiers
from tierd.serve.kafka.login import Login, LoginRefusedError, LoginStep

PEER = "192.0.2.7"


def logins(users: UserVerifiers | None = None, *, clock: Clock | None = None, lifetime_ms: int = 0) -> ListenerLogins:
    known = users or verifiers()
    return ListenerLogins(
        lambda: known, lifetime_ms=lambda: lifetime_ms, clock=clock or FakeClock(), nonce=lambda: "server"
    )


def begun(logins: ListenerLogins, mechanism: str, *, peer: str = PEER) -> Login:
    login = logins.begin(mechanism, peer=peer)
    assert login is not None
    return login


async def by_scram(logins: ListenerLogins, mechanism: str, name: str, password: str) -> LoginStep:
    client, login = AiokafkaScram(mechanism, name, password), begun(logins, mechanism)
    challenge = await login.step(client.first())
    assert challenge.principal is None
    step = await login.step(client.final(challenge.token))
    client.verify(step.token)
    return step


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    with captured_log() as stream:
        yield stream


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_login_ends_with_the_principal_of_the_user(mechanism: str) -> None:
    offered = logins(lifetime_ms=60_000)

    step = await by_scram(offered, mechanism, "user", PASSWORD)

    assert (step.principal, step.lifetime_ms, offered.logins) == ("User:user", 60_000, 1)


@pytest.mark.parametrize("authorization", ["", "user"])
async def test_plain_login_ends_with_the_principal_of_the_user(authorization: str) -> None:
    login = begun(logins(), "PLAIN")

    step = await login.step(f"{authorization}\0user\0{PASSWORD}".encode())

    assert step == LoginStep(b"", principal="User:user", lifetime_ms=0)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"user",
        b"\0user",
        b"\0user\0",
        b"\0\0pencil",
        b"admin\0user\0pencil",
        b"\0user\0pencil\0",
        b"\0user\0wrong",
        b"\0stranger\0pencil",
        b"\0user\0\xff",
        b"\0user\0" + b"x" * 5000,
    ],
)
async def test_plain_login_with_another_message_is_refused(token: bytes) -> None:
    with pytest.raises(LoginRefusedError):
        await begun(logins(), "PLAIN").step(token)


@given(token=st.binary(max_size=60))
def test_random_plain_messages_are_refused(token: bytes) -> None:
    with pytest.raises(LoginRefusedError):
        asyncio.run(begun(logins(), "PLAIN").step(token))


@pytest.mark.parametrize("mechanism", ["", "plain", "GSSAPI", "SCRAM-SHA-1", "OAUTHBEARER", "SCRAM-SHA-512"])
def test_mechanism_that_is_not_offered_begins_no_login(mechanism: str) -> None:
    offered = logins(verifiers(sasl(mechanisms=["PLAIN", "SCRAM-SHA-256"])))

    assert offered.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert offered.begin(mechanism, peer=PEER) is None


async def test_login_that_is_over_takes_no_further_message() -> None:
    offered = logins()
    plain, scram, refused = begun(offered, "PLAIN"), begun(offered, "SCRAM-SHA-256"), begun(offered, "SCRAM-SHA-256")
    token = f"\0user\0{PASSWORD}".encode()
    await plain.step(token)
    client = AiokafkaScram("SCRAM-SHA-256", "user", PASSWORD)
    first = client.first()
    final = client.final((await scram.step(first)).token)
    await scram.step(final)
    with pytest.raises(LoginRefusedError):
        await refused.step(b"")

    for login, message in ((plain, token), (scram, final), (scram, first), (refused, first)):
        with pytest.raises(LoginRefusedError):
            await login.step(message)


class TestFailures:
    """The wait after failures grows with the failures of one peer in a minute, and delays nobody else."""

    async def fail(self, offered: ListenerLogins, *, peer: str = PEER) -> None:
        with pytest.raises(LoginRefusedError):
            await begun(offered, "PLAIN", peer=peer).step(b"\0user\0wrong")

    async def test_wait_doubles_up_to_five_seconds(self) -> None:
        clock = FakeClock()
        offered = logins(clock=clock)

        for _ in range(32):
            await self.fail(offered)

        assert clock.sleeps_s[:6] == [0.1, 0.1, 0.1, 0.1, 0.2, 0.2]
        assert clock.sleeps_s[-2:] == [5.0, 5.0]
        assert offered.failures.total == 32

    async def test_other_peers_and_the_next_minute_begin_anew(self) -> None:
        clock = FakeClock()
        offered = logins(clock=clock)
        for _ in range(10):
            await self.fail(offered)

        await self.fail(offered, peer="198.51.100.1")
        clock.advance(60.0)
        await self.fail(offered)

        assert clock.sleeps_s[-2:] == [0.1, 0.1]

    def test_addresses_of_one_ipv6_network_are_one_peer(self) -> None:
        failures = LoginFailures()
        waits = [failures.record("2001:db8::/64", 0.0) for _ in range(5)]

        assert waits[-1] == 0.2

    def test_memory_of_many_peers_is_bounded(self) -> None:
        failures = LoginFailures()
        for number in range(25_000):
            failures.record(f"peer-{number}", 0.0)

        assert len(failures._counts) <= 10_000
        assert failures.total == 25_000

    async def test_failure_of_one_client_delays_no_login_of_another(self) -> None:
        clock = ManualClock()
        offered = logins(clock=clock)
        failing = asyncio.create_task(self.fail(offered))
        await eventually(lambda: clock.sleeping == 1, what="the wait of the failed login")

        step = await begun(offered, "PLAIN").step(f"\0user\0{PASSWORD}".encode())

        assert step.principal == "User:user"
        assert not failing.done()
        clock.advance(1.0)
        await failing

    async def test_first_failure_of_a_peer_in_a_minute_is_logged(self, log_text: io.StringIO) -> None:
        offered = logins()
        for _ in range(3):
            await self.fail(offered)

        assert log_text.getvalue().count('"login_failed"') == 1
        assert PEER in log_text.getvalue()

    async def test_cancelled_login_leaves_no_task_and_no_slot_taken(self) -> None:
        offered = logins()
        for _ in range(5):
            login = asyncio.create_task(begun(offered, "PLAIN").step(b"\0user\0wrong"))
            await asyncio.sleep(0)
            login.cancel()
            with pytest.raises(asyncio.CancelledError):
                await login

        step = await begun(offered, "PLAIN").step(f"\0user\0{PASSWORD}".encode())
        assert step.principal == "User:user"


async def test_no_secret_is_in_an_error_a_repr_or_the_log(log_text: io.StringIO) -> None:
    offered = logins(verifiers(sasl(user=SECRET)))
    texts = [repr(offered), repr(offered._users()), repr(vars(offered._users()))]
    for mechanism, token in (("PLAIN", f"\0user\0x{SECRET}"), ("PLAIN", f"\0{SECRET}\0x"), ("PLAIN", f"\0{SECRET}")):
        with pytest.raises(LoginRefusedError) as caught:
            await begun(offered, mechanism).step(token.encode())
        texts.append(rendered(caught.value))
    login = begun(offered, "SCRAM-SHA-256")
    with pytest.raises(LoginRefusedError) as caught:
        await login.step(f"n,,n=,r={SECRET}".encode())
    texts.append(rendered(caught.value) + repr(login) + repr(vars(login)))
    texts.append(log_text.getvalue())

    assert not any(map(reveals, texts))


def test_nonces_are_long_printable_and_never_the_same() -> None:
    nonces = {new_nonce() for _ in range(1000)}

    assert len(nonces) == 1000
    assert all(len(each) >= 24 and each.isascii() and each.isprintable() and "," not in each for each in nonces)
