"""The address of a server, as errors and logs may name it: without user, password or options."""

from urllib.parse import urlsplit


class BadAddressError(ValueError):
    """An address that cannot be understood. The text does not repeat the wrong part: it may be of the password."""

    def __init__(self) -> None:
        super().__init__("the address cannot be understood; in user and password %-encode / ? # [ ] @ :")


def name_of(kind: str, address: str) -> str:
    """Return the kind of server, with host and path where they are certain to hold no secret."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return kind
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    if "://" not in address or "@" in behind:  # a password with a slash ends the host early
        return kind
    host = parts.netloc.rpartition("@")[2]
    return f"{kind} {host}{parts.path}" if host else f"{kind} localhost{parts.path}"
