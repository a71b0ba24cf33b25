import pytest

from tierd.remote import Transform
from tierd.remote.transform.transform import PLAIN


def test_encryption_needs_a_key() -> None:
    with pytest.raises(ValueError, match="active key"):
        Transform(encrypts=True)


def test_plain_transform_neither_compresses_nor_encrypts() -> None:
    assert (PLAIN.level, PLAIN.encrypts, PLAIN.ring.active_id) == (None, False, None)
