"""Import of the room without the protocol of Kafka, which is loaded on demand."""

import pytest

import tierd.serve


@pytest.mark.parametrize("name", tierd.serve.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tierd.serve, name)


def test_unknown_name_of_the_room_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Endpoints"):
        tierd.serve.Endpoints  # noqa: B018 - the missing name is the test
