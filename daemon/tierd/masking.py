"""Masking: what client libraries say, made safe before it becomes a part of an error of tierd.

A client's exception may hold a URL with a password or a signature, or a header with a token. An adapter turns it into a
``MaskedError`` first, and makes its own error of that: text and cause of every ``TierError`` are safe when it is
raised. Two things are masked: the secrets that the adapter was given, in every form in which a URL, a header or a
``repr`` writes them; and whatever has the shape of a secret, for secrets that the environment gave to the client.
"""

import base64
import html
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from tierd.errors import TierError

MASK: Final = "********"
_SHORT: Final = 6  # characters; a shorter secret is masked only where it stands as a word of its own
_SHORTEST_PIECE: Final = 4  # of a password, and of its forms in base64
_DEEPEST_CHAIN: Final = 10
_LONGEST_TEXT: Final = 24_000  # characters of what a server said, which may be megabytes
_CUT_SECRET: Final = 6_000  # of those, at their end, that may be a secret without its own end

_URL: Final = re.compile(r"://[^\s\"'<>]*")
_NAMED: Final = re.compile(  # name, separator, opening quote, value
    r"(?P<keep>(?:(?:secret|passw(?:or)?d|pwd|token|signature|(?:access|account|api|customer|data|private|shared)"
    r"[-_. ]?(?:access[-_. ]?)?key)[\w.-]{0,32}[\"']?\s*[=:]\s*"
    r"|(?:credential|cookie|(?<![a-z])sig|(?<![a-z])sas)[\"']?\s*=\s*))"
    r"(?:b?\"[^\"\r\n]*\"?|b?'[^'\r\n]*'?|[^\s\"'&,;<>]+)",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(
    r"(?P<keep>(?:authorization|cookie)[\"']?\s*[:=,]\s*(?:b?[\"'])?)[^\"'\r\n>]+", re.IGNORECASE
)
_SCHEME: Final = re.compile(
    r"(?P<keep>\b(?:Bearer|Basic|Negotiate|SharedKey|SharedKeyLite|AWS4-HMAC-SHA256|GOOG4-[A-Z0-9-]{1,32})\s+)"
    r"(?=[^\s\"',]*[0-9A-Z=])[^\s\"',]{6,}"
)
_SHAPES: Final = re.compile(
    r"-----BEGIN [A-Z ]*(?:KEY|CERTIFICATE)-----.*?(?:-----END [A-Z ]*-----|\Z)"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bya29\.[\w.-]+|\b(?P<begun>eyJ[\w-]+)(?P<web_token>\.[\w-]+\.[\w-]*)?",
    re.DOTALL,
)
"""A web token that is begun is a match of its own: it is read once, however often it could begin anew within itself."""
_PARTS_NAMED: Final = re.compile(r"(?i)(?:passw(?:or)?d|sslpassword|token|secret|key|sig)=('[^']*'|[^\s&]+)")


class MaskedError(Exception):
    """Stand-in for an exception of a client library: its text, cause and notes with every secret masked.

    Attributes:
        kind: name of the class of the masked error.
        text: its message, masked; may be empty.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text or self.kind

    @property
    def named(self) -> str:
        """Return kind and text."""
        return f"{self.kind}: {self.text}" if self.text else self.kind


class Masking:
    """The secrets of one client, and the calls that mask them.

    Args:
        secrets: as they are configured: passwords, keys, tokens, and addresses that hold some.
    """

    def __init__(self, *secrets: str | None) -> None:
        values = {part for secret in secrets if secret for part in _parts(secret)}
        forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
        self._known = re.compile("|".join(map(_pattern, forms))) if forms else None

    def text(self, text: str) -> str:
        """Return ``text`` with every secret masked; of a long text the beginning."""
        is_cut = len(text) > _LONGEST_TEXT
        if is_cut:
            text = text[:_LONGEST_TEXT]
        if self._known is not None:
            text = self._known.sub(MASK, text)
        safe = masked(text)
        return f"{safe[:-_CUT_SECRET]} (shortened)" if is_cut else safe

    def error(self, error: BaseException) -> MaskedError:
        """Return the stand-in for ``error``, with the traceback, and with stand-ins for its causes."""
        return self._stand_in(error, _DEEPEST_CHAIN)

    @contextmanager
    def sealing(self) -> Iterator[None]:
        """Replace an exception of the context that is no ``TierError``, such as a bug in a library, by its stand-in."""
        try:
            yield
        except (TierError, MaskedError):
            raise
        except Exception as error:  # noqa: BLE001 - it goes on, made safe
            raise self.error(error) from None

    def _stand_in(self, error: BaseException, depth: int) -> MaskedError:
        stand_in = MaskedError(type(error).__name__, self.text(_message_of(error)))
        stand_in.__traceback__ = error.__traceback__
        stand_in.add_note(f"(raised as {type(error).__module__}.{type(error).__qualname__})")
        for note in getattr(error, "__notes__", ()):
            stand_in.add_note(self.text(str(note)))
        for inner in error.exceptions if isinstance(error, BaseExceptionGroup) and depth else ():
            stand_in.add_note("".join(traceback.format_exception(self._stand_in(inner, depth - 1))).rstrip())
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None and depth:
            stand_in.__cause__ = self._stand_in(cause, depth - 1)
        return stand_in


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - py4j asks the JVM for the text, and the JVM may be gone
        return ""


def masked(text: str) -> str:
    """Return ``text`` with everything masked that looks like a secret: users and queries of URLs, keys, headers."""
    text = _HEADER.sub(rf"\g<keep>{MASK}", text)
    text = _SHAPES.sub(lambda found: found[0] if found["begun"] and not found["web_token"] else MASK, text)
    text = _SCHEME.sub(rf"\g<keep>{MASK}", text)
    text = _URL.sub(lambda found: _safe_url(found[0]), text)
    return _NAMED.sub(rf"\g<keep>{MASK}", text)


def _safe_url(url: str) -> str:
    """Return a URL, given from ``://`` on, with user, password and query masked."""
    before, at, behind = url.rpartition("@")
    host = before.removeprefix("://").partition("/")[0]
    if at and ("/" not in before.removeprefix("://") or ":" in host):  # else the @ is a part of the path
        url = f"://{MASK}@{behind}"
    address, query, _ = url.partition("?")
    return f"{address}?{MASK}" if query else url


def _parts(secret: str) -> Iterator[str]:
    """Yield the secret, and what is secret in it where it is an address or a list of parameters."""
    yield secret
    for found in _PARTS_NAMED.finditer(secret):
        yield found[1].strip("'")
    user, at, _ = secret.partition("://")[2].rpartition("@")
    password = user.partition(":")[2]
    if at and password:
        yield password
        yield from (piece for piece in re.split(r"[/?#\[\]@:]", password) if len(piece) >= _SHORTEST_PIECE)


def _forms(secret: str) -> Iterator[str]:
    """Yield every form in which a URL, a header, JSON or a ``repr`` may write ``secret``."""
    for value in {secret, unquote(secret), unquote_plus(secret)} - {""}:
        yield value
        for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
            yield encoded
            yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
        yield from (json.dumps(value)[1:-1], repr(value)[1:-1], html.escape(value))
        yield from _base64_forms(value.encode(errors="surrogateescape"))


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield the characters of base64 that ``content`` alone decides, for any bytes before and behind it."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode().rstrip("=")
        own = encoded[(0, 2, 3)[before] : len(encoded) - bool((before + len(content)) % 3)]
        if len(own) >= _SHORTEST_PIECE:
            url_safe = own.replace("+", "-").replace("/", "_")
            yield from (own, url_safe, quote(own, safe=""))


def _pattern(form: str) -> str:
    escaped = re.escape(form)
    return escaped if len(form) >= _SHORT else rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"
