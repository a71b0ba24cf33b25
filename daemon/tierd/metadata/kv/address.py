"""The address of a server, as errors and logs may name it: without user, password or options."""

from urllib.parse import urlsplit


class BadAddressError(ValueError):
    """An address that cannot be understood. What is wrong with it is not repeated: it may be a part of the password."""

    def __init__(self) -> None:
        super().__init__("the address cannot be understood; in user and password %-encode / ? # [ ] @ :")


def name_of(kind: str, address: str) -> str:
    """The kind of server, and host and path where they are told from the secrets for sure."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return kind
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    if "://" not in address or "@" in behind:  # a password with a slash ends the host early
        return kind
    host = parts.netloc.rpartition("@")[2]
    return f"{kind} {host}{parts.path}" if host else f"{kind} localhost{parts.path}"
