"""The server's side of SCRAM: the vectors of the RFC, clients of other projects, and clients that cheat."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.kafka.access.clients import ITERATIONS, PASSWORD, AiokafkaScram, client_final, sasl, verifiers
from tierd.config import ScramVerifier
from tierd.control.sasl import ScramClient
from tierd.serve.kafka.access.scram_exchange import LONGEST_TOKEN_BYTES, ScramExchange
from tierd.serve.kafka.access.user_verifiers import UserVerifiers
from tierd.serve.kafka.login import LoginRefusedError

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=user,r={NONCE}"
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
USERS = verifiers()


def exchange(users: UserVerifiers = USERS, *, mechanism: str = "SCRAM-SHA-256", nonce: str = "server") -> ScramExchange:
    return ScramExchange(mechanism, users, nonce=nonce)


def test_exchange_is_that_of_rfc_7677_section_3() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = {"SCRAM-SHA-256": {"user": ScramVerifier.of_password("pencil", "sha256", salt=salt, iterations=4096)}}
    users = UserVerifiers(("SCRAM-SHA-256",), known, secret=b"")
    server = exchange(users, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    assert server.first(FIRST.encode()) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.final(final) == ("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["user", "a,b=c", "=2C", "=3D2C,,==", "straße 😀"])
def test_client_of_aiokafka_logs_in_and_accepts_the_proof_of_the_server(mechanism: str, name: str) -> None:
    users = verifiers(sasl(**{name: "pässword"}))
    client, server = AiokafkaScram(mechanism, name, "pässword"), exchange(users, mechanism=mechanism)

    final = client.final(server.first(client.first()))
    logged_in, proof = server.final(final)

    assert logged_in == name
    client.verify(proof)


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)


@settings(deadline=None, max_examples=50)
@given(name=_TEXT, password=_TEXT, guess=_TEXT, nonce=st.from_regex(r"[!-+\--~]{1,40}", fullmatch=True))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_login_succeeds_with_the_right_password_alone(
    mechanism: str, name: str, password: str, guess: str, nonce: str
) -> None:
    users = verifiers(sasl(mechanisms=[mechanism], **{name: password}))
    for given_password in (password, guess):
        client, server = ScramClient(mechanism, name, given_password, nonce=nonce), exchange(users, mechanism=mechanism)
        final = client.final(server.first(client.first()))
        if given_password == password:
            logged_in, proof = server.final(final)
            assert logged_in == name
            client.verify(proof)
        else:
            with pytest.raises(LoginRefusedError):
                server.final(final)


def test_unknown_user_is_challenged_like_a_known_one_and_refused_at_the_proof() -> None:
    challenges = []
    for name in ("user", "stranger", "stranger"):
        server, first = exchange(), f"n,,n={name},r={NONCE}"
        challenge = server.first(first.encode()).decode()
        challenges.append(dict(part.split("=", 1) for part in challenge.split(",")))
        if name == "stranger":
            with pytest.raises(LoginRefusedError):
                server.final(client_final("sha256", PASSWORD, first, challenge).encode())
    known, unknown, again = challenges

    assert known.keys() == unknown.keys()
    assert (len(known["s"]), known["i"]) == (len(unknown["s"]), unknown["i"])
    assert unknown == again


def test_user_without_a_hash_for_the_mechanism_is_a_stranger() -> None:
    hashed = ScramVerifier.of_password(PASSWORD, "sha512", salt=b"salt", iterations=ITERATIONS)
    users = UserVerifiers(("SCRAM-SHA-256", "SCRAM-SHA-512"), {"SCRAM-SHA-512": {"user": hashed}}, secret=b"")
    server = exchange(users)

    challenge = server.first(FIRST.encode()).decode()

    with pytest.raises(LoginRefusedError):
        server.final(client_final("sha256", PASSWORD, FIRST, challenge).encode())


def test_client_that_puts_its_nonce_in_front_of_the_nonce_of_both_logs_in() -> None:
    server = exchange()
    challenge = server.first(FIRST.encode()).decode()

    final = client_final("sha256", PASSWORD, FIRST, challenge, before_nonce=NONCE)

    assert server.final(final.encode())[0] == "user"


def test_messages_of_an_earlier_login_do_not_log_in_again() -> None:
    earlier = exchange(nonce="first")
    challenge = earlier.first(FIRST.encode()).decode()
    final = client_final("sha256", PASSWORD, FIRST, challenge).encode()
    earlier.final(final)

    replayed = exchange(nonce="second")
    replayed.first(FIRST.encode())

    with pytest.raises(LoginRefusedError):
        replayed.final(final)


def test_proof_for_another_user_is_refused() -> None:
    users = verifiers(sasl(alice="one", bob="two"))
    server = exchange(users)
    challenge = server.first(f"n,,n=bob,r={NONCE}".encode()).decode()

    with pytest.raises(LoginRefusedError):
        server.final(client_final("sha256", "two", f"n,,n=alice,r={NONCE}", challenge).encode())


def test_extensions_of_a_client_are_passed_over_as_the_rfc_asks() -> None:
    server, first = exchange(), f"{FIRST},tokenauth=true"

    challenge = server.first(first.encode()).decode()

    assert server.final(client_final("sha256", PASSWORD, first, challenge).encode())[0] == "user"


@pytest.mark.parametrize("gs2", ["n,a=user,", "y,,", "y,a=user,"])
def test_header_of_a_client_without_channel_binding_is_accepted(gs2: str) -> None:
    server, first = exchange(), f"{gs2}n=user,r={NONCE}"

    challenge = server.first(first.encode()).decode()

    assert server.final(client_final("sha256", PASSWORD, first, challenge, gs2=gs2).encode())[0] == "user"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "n",
        f"p=tls-unique,,n=user,r={NONCE}",
        f"n,a=admin,n=user,r={NONCE}",
        f"n,,m=x,n=user,r={NONCE}",
        f"n,,n=,r={NONCE}",
        "n,,n=user,r=",
        "n,,n=user",
        "n,,n=user,r=a b",
        "n,,n=user,r=é",
        f"n,,n=us=er,r={NONCE}",
        f"n,,n=us=2cer,r={NONCE}",
        f"n,,r={NONCE},n=user",
        "n,,n=user,r=" + "x" * 257,
        "n,,n=" + "x" * LONGEST_TOKEN_BYTES + f",r={NONCE}",
        "\ud800",
    ],
)
def test_first_message_that_breaks_the_protocol_is_refused(message: str) -> None:
    with pytest.raises(LoginRefusedError):
        exchange().first(message.encode(errors="surrogatepass"))


@pytest.mark.parametrize(
    "change",
    [
        ("c=biws", "c=eSws"),
        ("c=biws", "c=!"),
        ("c=biws,", ""),
        (",r=", ",r=x"),
        (",p=", ",p=AAAA"),
        (",p=", ",m=1,p=!"),
        (",p=", ",q="),
    ],
    ids="".join,
)
def test_final_message_that_was_changed_is_refused(change: tuple[str, str]) -> None:
    server = exchange()
    challenge = server.first(FIRST.encode()).decode()
    final = client_final("sha256", PASSWORD, FIRST, challenge).replace(*change, 1)

    with pytest.raises(LoginRefusedError):
        server.final(final.encode())


@given(first=st.binary(max_size=100), last=st.binary(max_size=100))
def test_random_messages_lead_only_to_a_refused_login(first: bytes, last: bytes) -> None:
    server = exchange()
    with pytest.raises(LoginRefusedError):
        server.first(first)
    server.first(FIRST.encode())
    with pytest.raises(LoginRefusedError):
        server.final(last)


@given(
    edits=st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=3)), min_size=1, max_size=3),
    is_first=st.booleans(),
)
def test_damaged_messages_of_a_real_login_never_log_in_as_another_user(
    edits: list[tuple[int, bytes]], is_first: bool
) -> None:
    server = exchange()
    first = FIRST.encode()
    try:
        challenge = server.first(_edited(first, edits) if is_first else first).decode()
        final = client_final("sha256", PASSWORD, FIRST, challenge).encode()
        name, _ = server.final(final if is_first else _edited(final, edits))
    except LoginRefusedError:
        return
    assert name == "user"


def _edited(message: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    for at, piece in edits:
        message = message[:at] + piece + message[at + len(piece) :]
    return message


def test_refusal_says_the_same_for_every_reason() -> None:
    messages = set()
    for first, password in ((b"", ""), (FIRST.encode(), "wrong"), (f"n,,n=x,r={NONCE}".encode(), PASSWORD)):
        server = exchange()
        with pytest.raises(LoginRefusedError) as caught:
            server.final(client_final("sha256", password, first.decode(), server.first(first).decode()).encode())
        assert caught.value.__cause__ is None
        messages.add(str(caught.value))

    assert len(messages) == 1


def test_repr_of_a_user_in_the_exchange_shows_no_key() -> None:
    user = USERS.find("user", "SCRAM-SHA-256")

    assert "verifier" not in repr(user)
