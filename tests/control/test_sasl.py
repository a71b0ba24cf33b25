"""SCRAM and PLAIN by themselves: the vectors of the RFC, and servers that break the protocol."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coded import coded
from tierd.control.sasl import ScramClient, is_scram, plain_message
from tierd.errors import KafkaError, TierErrorCode

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(*, mechanism: str = "SCRAM-SHA-256", username: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism, username, password, nonce=NONCE)


def test_scram_exchange_is_that_of_rfc_7677_section_3() -> None:
    scram = client()

    assert scram.first() == b"n,,n=user,r=" + NONCE.encode()
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


@pytest.mark.parametrize(("mechanism", "name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
@given(password=st.text(min_size=1), salt=st.binary(min_size=1, max_size=40))
def test_proof_is_accepted_by_a_server_that_follows_rfc_5802(
    mechanism: str, name: str, password: str, salt: bytes
) -> None:
    try:
        password.encode()
    except UnicodeEncodeError:
        return
    scram = client(mechanism=mechanism, password=password)
    first = f"r={NONCE}more,s={base64.b64encode(salt).decode()},i=4096"
    final = scram.final(first.encode()).decode()
    bare, _, proof = final.rpartition(",p=")

    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, 4096)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    signed = f"n=user,r={NONCE},{first},{bare}".encode()
    signature = hmac.digest(stored_key, signed, name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(name, key).digest() == stored_key
    server_key = hmac.digest(salted, b"Server Key", name)
    scram.verify(b"v=" + base64.b64encode(hmac.digest(server_key, signed, name)))


def test_commas_and_equal_signs_of_a_name_are_escaped() -> None:
    assert client(username="a,b=c").first() == f"n,,n=a=2Cb=3Dc,r={NONCE}".encode()


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    scram = client()
    scram.final(SERVER_FIRST)

    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_AUTHENTICATION), match="cannot prove"):
        scram.verify(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"e=unknown-user", "unknown-user"),
        (b"r=somebody-else,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not answer ours"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not answer ours"),
        (b"m=x,r=" + NONCE.encode() + b"1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not answer ours"),
        (b"r=" + NONCE.encode() + b"1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "1 iterations"),
        (b"r=" + NONCE.encode() + b"1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999", "999999999 iterations"),
        (b"r=" + NONCE.encode() + b"1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-5", "no count"),
        (b"r=" + NONCE.encode() + b"1,s=***,i=4096", "base64"),
        (b"r=" + NONCE.encode() + b"1,s=,i=4096", "no salt"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_challenge_that_breaks_the_protocol_is_refused(message: bytes, problem: str) -> None:
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_AUTHENTICATION), match=problem) as caught:
        client().final(message)
    assert caught.value.remedy


@given(first=st.binary(), last=st.binary())
def test_random_messages_of_a_server_lead_only_to_a_refused_login(first: bytes, last: bytes) -> None:
    scram = client()
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_AUTHENTICATION)):
        scram.final(first)
    scram.final(SERVER_FIRST)
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_AUTHENTICATION)):
        scram.verify(last)


def test_plain_login_sends_name_and_password_behind_zero_bytes() -> None:
    assert plain_message("tierd", "straße") == b"\0tierd\0" + "straße".encode()
    assert is_scram("SCRAM-SHA-512")
    assert not is_scram("PLAIN")
