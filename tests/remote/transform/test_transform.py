import pytest

from tierd.remote import Transform
from tierd.remote.transform.transform import PLAIN


def test_encryption_needs_a_key() -> None:
    with pytest.raises(ValueError, match="active key"):
        Transform(encrypts=True)


def test_plain_does_nothing() -> None:
    assert (PLAIN.level, PLAIN.encrypts, PLAIN.ring.active_id) == (None, False, None)
