import base64
import re
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.canary import CORE, SECRET, rendered, reveals
from tierd.errors import TierError
from tierd.masking import MASK, MaskedError, Masking, masked


@pytest.mark.parametrize(
    "text",
    [
        f"Cannot connect to http://proxy:{CORE}@host:3128/",
        f"postgresql://tierd:{CORE}/x?y#z@host/db is no address",
        f"GET https://host/c/key?sv=2021&sig={CORE} failed",
        f"timeout to host /container/key?comp=block&sig={CORE}",
        f"https://b.s3.amazonaws.com/k?X-Amz-Credential={CORE}&X-Amz-Signature={CORE}",
        f"<CIMultiDict('Host': 'h', 'Authorization': 'Bearer {CORE}')>",
        f"authorization: SharedKey account:{CORE}\nhost: x",
        f"(b'Proxy-Authorization', b'Basic {CORE}')",
        f"x-amz-security-token: {CORE}",
        f'{{"refresh_token": "{CORE}", "client_secret": "{CORE}"}}',
        f"AccountName=a;AccountKey={CORE};EndpointSuffix=x",
        f"spark.hadoop.fs.s3a.secret.key={CORE}",
        f"fs.azure.account.key.mytier.blob: {CORE}",
        f"host=h password='a {CORE}' user=u",
        f"-----BEGIN PRIVATE KEY-----\n{CORE}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CORE} cut off",
        f"Bearer {CORE}9A",
    ],
)
def test_secret_in_a_text_is_masked_by_its_shape(text: str) -> None:
    assert CORE not in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "put s3://tierd/prod/orders-0/00000000000000000042.log: 503 SlowDown: Please reduce your request rate.",
        "put s3://tierd/team@home/orders-0/x.log: 412 PreconditionFailed",
        "http://127.0.0.1:9000 does not answer: ClientConnectorError: Connect call failed ('127.0.0.1', 9000)",
        "the broker's certificate is not trusted: unable to get local issuer certificate",
        "correct remote.azure.account_key or sas_token, or give this identity the role",
    ],
)
def test_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


@given(
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=0x24F), min_size=6, max_size=40),
    before=st.text("abc:", max_size=5),
)
def test_known_secret_is_masked_in_every_form_that_a_url_or_header_gives_it(secret: str, before: str) -> None:
    masking = Masking(secret)
    basic = base64.b64encode(f"{before}{secret}".encode()).decode()
    lower = re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(secret, safe=""))
    for form in (secret, quote(secret, safe=""), lower, basic):
        assert form not in masking.text(f"| {form} |")


def test_known_password_is_masked_in_pieces_of_its_address() -> None:
    masking = Masking("postgresql://tierd:first/second@host/db")
    assert masking.text("invalid port 'first', path '/second'") == f"invalid port '{MASK}', path '/{MASK}'"


def test_short_secret_is_masked_only_as_a_word() -> None:
    masking = Masking("ab")
    assert masking.text("password ab is not about labs") == f"password {MASK} is not about labs"


def test_masked_error_keeps_kind_traceback_notes_and_causes_without_secrets() -> None:
    def fail() -> None:
        try:
            dict[str, str]()[SECRET]
        except KeyError as error:
            error.add_note(f"while {SECRET}")
            raise ValueError(f"no {SECRET}") from error

    with pytest.raises(ValueError, match="no") as caught:
        fail()
    stand_in = Masking(SECRET).error(caught.value)

    assert stand_in.named == f"ValueError: no {MASK}"
    text = rendered(stand_in)
    assert "in fail" in text
    assert "KeyError" in text
    assert not reveals(text)


def test_masked_error_of_a_group_keeps_the_traceback_of_each_member() -> None:
    def fail() -> None:
        dict[str, str]()[SECRET]

    errors: list[Exception] = []
    for _ in range(2):
        try:
            fail()
        except KeyError as error:
            errors.append(error)
    text = rendered(Masking(SECRET).error(ExceptionGroup(f"two {SECRET}", errors)))
    assert "in fail" in text
    assert "KeyError" in text
    assert not reveals(text)


def test_sealing_replaces_a_bug_and_lets_errors_of_tierd_pass() -> None:
    masking = Masking(SECRET)
    with pytest.raises(MaskedError) as caught, masking.sealing():
        raise AttributeError(f"no attribute {SECRET}")
    assert not reveals(rendered(caught.value))

    error = TierError("ours")
    with pytest.raises(TierError) as passed, masking.sealing():
        raise error
    assert passed.value is error


def test_exception_without_a_readable_text_is_masked_to_its_kind() -> None:
    class GoneError(Exception):
        def __str__(self) -> str:
            raise ConnectionError

    assert str(Masking().error(GoneError())) == "GoneError"


def test_masking_of_a_long_hostile_text_ends() -> None:
    for part in ("://", "a" * 50, "password", "Bearer ", "-----BEGIN KEY-----", "eyJ", "authorization"):
        masked(part * (200_000 // len(part)))


@pytest.mark.parametrize("begun", ["eyJ-", "GOOG4-", "Bearer ", "secret ", "-----BEGIN ", "token=", "://"])
def test_text_with_many_beginnings_of_secrets_is_masked_in_two_seconds(begun: str) -> None:
    text = begun * (200_000 // len(begun))
    began_s = time.process_time()
    masked(text)
    assert time.process_time() - began_s < 2, "the time grows with the square of the length"


LONGEST_TEXT = 24_000


def test_long_text_is_shortened_without_a_part_of_a_secret_at_its_end() -> None:
    secret = "".join(f"<{number}>" for number in range(100))
    text = "refused: " + "x" * (LONGEST_TEXT - 200) + secret + "x" * 10_000_000
    safe = Masking(secret).text(text)
    assert safe.startswith("refused: xxx")
    assert safe.endswith("x (shortened)")
    assert len(safe) < LONGEST_TEXT
    assert "<" not in safe


@pytest.mark.parametrize("token", ["eyJhbGciOiJI.eyJzdWIi.SflKxw", "eyJhbGciOiJI.eyJzdWIi.", "x eyJa-eyJb.c-d_e.f"])
def test_web_token_is_masked_and_text_that_only_begins_like_one_stays(token: str) -> None:
    assert masked(f"sent {token} twice") == f"sent {'x ' * token.startswith('x')}{MASK} twice"
    assert masked("eyJa.b, eyJ, eyJabc and eyJa.b c.d") == "eyJa.b, eyJ, eyJabc and eyJa.b c.d"
