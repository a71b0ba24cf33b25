import pytest

from tierd.cost.billed_requests import Billed, RequestClass, billed_requests, puts_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "puts"), [(0, 1), (25 * MIB, 1), (25 * MIB + 1, 4), (100 * MIB, 6), (1000 * MIB, 42)]
)
def test_an_object_above_the_part_size_is_begun_sent_in_parts_and_completed(size_bytes: int, puts: int) -> None:
    assert puts_of(size_bytes, part_size_bytes=25 * MIB) == puts


def test_object_of_any_size_is_one_request_at_a_store_without_parts() -> None:
    assert puts_of(1 << 40, part_size_bytes=None) == 1


@pytest.mark.parametrize(
    ("operation", "billed"),
    [
        ("get", [Billed(RequestClass.GET, 1)]),
        ("head", [Billed(RequestClass.GET, 1)]),
        ("list", [Billed(RequestClass.LIST, 1)]),
        ("delete", [Billed(RequestClass.DELETE, 1)]),
        ("list_versions", [Billed(RequestClass.LIST, 1)]),
        ("delete_version", [Billed(RequestClass.DELETE, 1)]),
        ("replace", [Billed(RequestClass.PUT, 1), Billed(RequestClass.GET, 1)]),
        ("something new", []),
    ],
)
def test_each_call_is_billed_in_its_request_class(operation: str, billed: list[Billed]) -> None:
    assert list(billed_requests(operation, 10, part_size_bytes=25 * MIB)) == billed
