"""Secret that a test plants, and a search for it in every form in which a text may hold it."""

import base64
import binascii
import io
import re
import traceback
from contextlib import redirect_stderr
from urllib.parse import unquote_plus

import structlog

from tests.fakes.log_capture import captured_log
from tierd.app.daemon.task_supervisor import _one_line
from tierd.cli.failures import print_failure
from tierd.errors import TierError

CORE = "c4nary"
SECRET = f"{CORE}/+Zq &=7%"
"""Characters that URLs, forms, base64 and JSON write in other ways."""
KEY = base64.b64encode(SECRET.encode().ljust(32, b"k")).decode()

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_ESCAPED = re.compile(r"\\[ux]0{0,2}([0-9a-f]{2})")


def reveals(text: str) -> bool:
    """Return whether ``text`` holds the canary, plainly, escaped, URL-encoded once or twice, or in base64."""
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    forms = {text, plain, unquote_plus(plain), unquote_plus(unquote_plus(plain))}
    return any(CORE in form for form in forms) or any(map(_in_base64, forms))


def _in_base64(text: str) -> bool:
    for token in set(_BASE64.findall(text.replace("=", " "))):
        standard = token.replace("-", "+").replace("_", "/")
        for start in range(4):
            piece = standard[start : start + (len(standard) - start) // 4 * 4]
            try:
                if CORE.encode() in base64.b64decode(piece):
                    return True
            except binascii.Error:
                continue
    return False


def rendered(error: BaseException) -> str:
    """Return all output of log, status, page and command line for ``error``."""
    texts = [str(error), repr(error), *map(str, getattr(error, "__notes__", ()))]
    texts += traceback.format_exception(error)
    if isinstance(error, Exception):
        texts.append(_one_line(error))
    if isinstance(error, TierError):
        texts.append(error.remedy)
        with redirect_stderr(io.StringIO()) as printed:
            print_failure(error)
        texts.append(printed.getvalue())
    for form in ("json", "console"):
        with captured_log(level="info", format=form) as stream:
            structlog.get_logger().error("failed", exc_info=error, problem=str(error), error=error)
            texts.append(stream.getvalue())
    return "\n".join(texts)
