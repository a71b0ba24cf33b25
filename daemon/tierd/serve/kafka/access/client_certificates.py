"""certificate_principal: the principal of a client certificate, as Kafka names it (Java: X500Principal.getName).

It is ``User:`` and the subject in the text of RFC 2253: the last part first, ``CN=etl,OU=Data,O=Example``. Attributes
without a keyword there have the number of their type and the hex digits of their encoding, and values are escaped as
Java does.
"""

from typing import Final

from cryptography import x509

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def certificate_principal(certificate: bytes) -> str:
    """Return the principal of a certificate in DER, which TLS has verified.

    Raises:
        ValueError: its subject cannot be read.
    """
    try:
        return _principal_of(x509.load_der_x509_certificate(certificate).subject)
    except (ValueError, TypeError, x509.InvalidVersion) as error:
        raise ValueError(f"the subject of the client's certificate cannot be read: {error}") from error


def _principal_of(subject: x509.Name) -> str:
    return "User:" + ",".join("+".join(map(_attribute, parts)) for parts in reversed(subject.rdns))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    keyword = _KEYWORDS.get(attribute.oid.dotted_string)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{keyword or attribute.oid.dotted_string}=#{_encoded_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    text = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in value)
    begin, end = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    return "\\ " * begin + text[begin:end] + "\\ " * (len(text) - max(begin, end))


def _encoded_value(attribute: "x509.NameAttribute[str | bytes]") -> bytes:
    """Return type, length and content of a value: the end of a name that has this attribute alone."""
    content = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # SEQUENCE of SET of SEQUENCE
        content = content[_header_bytes(content) :]
    return content[_header_bytes(content) + content[1] :]  # behind the number of the type, shorter than 128 bytes


def _header_bytes(content: bytes) -> int:
    return 2 if content[1] < 0x80 else 2 + (content[1] & 0x7F)
