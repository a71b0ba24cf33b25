"""UserVerifiers: passwords and hashes of the file, and the stand-ins of users that are not known."""

import pytest

from tests.serve.kafka.access.clients import ITERATIONS, PASSWORD, sasl, verifiers
from tierd.config import EndpointSaslSettings, ScramVerifier
from tierd.serve.kafka.access.user_verifiers import UserVerifiers


def hashed(**users: dict[str, str]) -> EndpointSaslSettings:
    return EndpointSaslSettings.model_validate(
        {"mechanisms": ["PLAIN"], "users": [{"name": name, **found} for name, found in users.items()]}
    )


def hash_of(password: str, hash_name: str, *, iterations: int = ITERATIONS) -> str:
    return ScramVerifier.of_password(password, hash_name, salt=b"0123456789", iterations=iterations).to_text()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_with_a_password_is_known_to_every_mechanism(mechanism: str) -> None:
    user = verifiers().find("user", mechanism)

    assert user.is_known
    assert user.has_password(PASSWORD)
    assert not user.has_password(PASSWORD + " ")


@pytest.mark.parametrize(("key", "hash_name"), [("scram_sha_256", "sha256"), ("scram_sha_512", "sha512")])
def test_hash_in_place_of_a_password_does_for_plain(key: str, hash_name: str) -> None:
    users = UserVerifiers.derive(hashed(etl={key: hash_of("pencil", hash_name, iterations=5000)}))

    assert users.find("etl", "PLAIN").has_password("pencil")
    assert not users.find("etl", "PLAIN").has_password("pencils")


def test_every_password_has_a_salt_of_its_own() -> None:
    users = UserVerifiers.derive(sasl(one="same", two="same"))

    salts = {users.find(name, each).verifier.salt for name in ("one", "two") for each in ("SCRAM-SHA-256", "PLAIN")}
    assert len(salts) == 4


def test_unknown_user_has_no_password_that_fits() -> None:
    user = verifiers().find("stranger", "PLAIN")

    assert not user.is_known
    assert not user.has_password(PASSWORD)
    assert not user.has_password("")


def test_unknown_users_look_like_those_that_are_known() -> None:
    settings = hashed(
        old={"scram_sha_256": hash_of("a", "sha256", iterations=4096)},
        new={"scram_sha_512": hash_of("b", "sha512", iterations=9000)},
    )
    users = UserVerifiers.derive(settings)

    strangers = [users.find(f"stranger-{number}", "PLAIN") for number in range(50)]
    assert {(each.hash_name, each.verifier.iterations) for each in strangers} == {("sha256", 4096), ("sha512", 9000)}
    assert {len(each.verifier.salt) for each in strangers} == {10}
    assert len({each.verifier.salt for each in strangers}) == 50


def test_stand_in_of_a_name_is_the_same_at_each_login() -> None:
    users = verifiers()

    assert users.find("stranger", "SCRAM-SHA-512") == users.find("stranger", "SCRAM-SHA-512")


def test_stand_ins_of_another_process_are_others() -> None:
    first, second = UserVerifiers.derive(sasl()), UserVerifiers.derive(sasl())

    assert first.find("stranger", "PLAIN").verifier.salt != second.find("stranger", "PLAIN").verifier.salt


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_without_users_everybody_is_a_stranger(mechanism: str) -> None:
    users = UserVerifiers.derive(EndpointSaslSettings())

    assert not users.find("user", mechanism).has_password(PASSWORD)


def test_only_the_mechanisms_of_the_file_are_offered() -> None:
    assert verifiers(sasl(mechanisms=["SCRAM-SHA-256"])).mechanisms == ("SCRAM-SHA-256",)
