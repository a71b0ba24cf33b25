"""Principals of client certificates: each expected text was printed by Java (X500Principal.getName)."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tierd.serve.kafka.access.client_certificates import certificate_principal

Parts = list[list[tuple[x509.ObjectIdentifier, str]]]
CN, O, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741 - as there
C, DC, STREET = NameOID.COUNTRY_NAME, NameOID.DOMAIN_COMPONENT, NameOID.STREET_ADDRESS
KEY = ed25519.Ed25519PrivateKey.generate()


def certificate(parts: Parts) -> bytes:
    """Return a certificate in DER with a subject of these relative names."""
    subject = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in part]) for part in parts]
    )
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(KEY, None)
    )
    return built.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "java"),
    [
        ([[(C, "DE")], [(O, "Example")], [(OU, "Data")], [(CN, "etl")]], "CN=etl,OU=Data,O=Example,C=DE"),
        ([[(DC, "com")], [(DC, "example")], [(NameOID.USER_ID, "42")]], "UID=42,DC=example,DC=com"),
        ([[(CN, 'a,b+c=d"e\\f<g>h;i#j')]], r"CN=a\,b\+c\=d\"e\\f\<g\>h\;i\#j"),
        ([[(CN, "  two  ")]], r"CN=\ \ two\ \ "),
        ([[(CN, "straße 😀")]], "CN=straße 😀"),
        ([[(OU, "a"), (CN, "b")]], "CN=b+OU=a"),
        (
            [[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "etl")]],
            "CN=etl,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        ([[(NameOID.SERIAL_NUMBER, "7")], [(CN, "etl")]], "CN=etl,2.5.4.5=#130137"),
        (
            [[(STREET, "s")], [(NameOID.LOCALITY_NAME, "l")], [(NameOID.STATE_OR_PROVINCE_NAME, "t")]],
            "ST=t,L=l,STREET=s",
        ),
        ([], ""),
    ],
)
def test_principal_is_the_subject_in_the_text_of_java(parts: Parts, java: str) -> None:
    assert certificate_principal(certificate(parts)) == f"User:{java}"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        certificate_principal(content)


@given(
    first=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=3),
    second=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=3),
)
def test_different_subjects_have_different_principals(first: list[str], second: list[str]) -> None:
    principals = [certificate_principal(certificate([[(O, text)] for text in each])) for each in (first, second)]

    assert (principals[0] == principals[1]) == (first == second)


def test_value_that_looks_like_two_attributes_is_one() -> None:
    forged = certificate_principal(certificate([[(CN, "etl,O=Example")]]))

    assert forged != certificate_principal(certificate([[(O, "Example")], [(CN, "etl")]]))
