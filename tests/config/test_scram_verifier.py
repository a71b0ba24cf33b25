"""ScramVerifier: the text of Kafka's tools, and texts that are none."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config import ScramVerifier

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# Written by Kafka 3.9.2 (ScramFormatter, ScramCredentialUtils): the example of RFC 7677, and another password.
OF_PENCIL = (
    "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
    "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
)

OF_KAFKA = (
    "salt=MWxtZ2RkanM2bGVnMmpxZXlxZzhlMWNrdjA=,"
    "stored_key=Nrj71f5mSPk63qNmeRLIHvNEMJHYe1irEQ9z+j3wgQbsMOGxS6jNv5P3Rf99/i+Uys3cu6lio7oPLMdFvXN0eA==,"
    "server_key=5ceD/IRcuLJlpdqy8cd0i+0is6eCUYZysY/G9u2w67MlqY8JD6QHGHp4Pc2oDRIaEQASe/TnwJpEk0JxpdomhA==,iterations=8192"
)


def test_verifier_of_a_password_is_that_of_the_rfc() -> None:
    verifier = ScramVerifier.of_password("pencil", "sha256", salt=SALT, iterations=4096)

    assert verifier.to_text() == OF_PENCIL
    assert ScramVerifier.parse(OF_PENCIL, "sha256") == verifier


def test_hash_that_kafka_made_of_a_password_fits_the_password() -> None:
    of_kafka = ScramVerifier.parse(OF_KAFKA, "sha512")

    assert ScramVerifier.of_password("pässword,=1", "sha512", salt=of_kafka.salt, iterations=8192) == of_kafka
    assert of_kafka.to_text() == OF_KAFKA


@given(password=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), salt=st.binary(min_size=1, max_size=64))
@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
def test_text_of_every_verifier_is_read_back(hash_name: str, password: str, salt: bytes) -> None:
    verifier = ScramVerifier.of_password(password, hash_name, salt=salt, iterations=4096)

    assert ScramVerifier.parse(verifier.to_text(), hash_name) == verifier


def test_spaces_behind_commas_are_allowed() -> None:
    assert ScramVerifier.parse(OF_PENCIL.replace(",", ", "), "sha256").iterations == 4096


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no SCRAM hash"),
        ("pencil", "is no SCRAM hash"),
        (OF_PENCIL.replace("salt=", "salt:"), "is no SCRAM hash"),
        (f"{OF_PENCIL},iterations=4096", "is no SCRAM hash"),
        (OF_PENCIL.replace("stored_key=W", "stored_key=!"), "stored_key is no base64"),
        (OF_PENCIL.replace("stored_key=WG5d", "stored_key="), "stored_key has 29 bytes"),
        (OF_PENCIL.replace("=W22ZaJ0SNY7soEsUEjb6gQ==", "="), "salt has 0 bytes"),
        (OF_PENCIL.replace("4096", "4095"), "iterations must be from 4096 to 1000000"),
        (OF_PENCIL.replace("4096", "99999999999"), "iterations is no whole number"),
        (OF_PENCIL.replace("4096", "²"), "iterations is no whole number"),
    ],
)
def test_text_that_is_no_hash_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ScramVerifier.parse(text, "sha256")


def test_hash_of_the_other_function_is_refused() -> None:
    with pytest.raises(ValueError, match="has 32 bytes, not the 64 of sha512"):
        ScramVerifier.parse(OF_PENCIL, "sha512")


@given(st.text())
def test_refusal_of_any_text_is_a_fault_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"SCRAM hash|base64|bytes|iterations") as caught:
        ScramVerifier.parse(text, "sha256")
    assert len(text) < 8 or text not in str(caught.value)


def test_repr_of_a_verifier_shows_no_key() -> None:
    assert repr(ScramVerifier.parse(OF_PENCIL, "sha256")) == "ScramVerifier(iterations=4096)"
