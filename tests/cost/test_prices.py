from pathlib import Path

import pytest

from tierd.cost.billed_requests import RequestClass
from tierd.cost.prices import PriceList, load_prices
from tierd.errors import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return path


def test_price_that_the_file_leaves_out_is_the_list_price(tmp_path: Path) -> None:
    prices = load_prices(written(tmp_path, "currency: EUR\nper_1000_requests: {put: 0.006}\n"))

    assert (prices.currency, prices.per_1000_requests.put) == ("EUR", 0.006)
    assert prices.storage_per_gib_month == PriceList().storage_per_gib_month
    assert prices.of_requests(RequestClass.PUT, 500) == pytest.approx(0.003)


def test_every_fault_of_a_price_file_is_named_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, "storage_per_gib_month: -1\nper_1000_requests:\n  put: many\nstorige: 2\n")

    with pytest.raises(ConfigError) as caught:
        load_prices(path)

    assert [(fault.line, fault.message.split(":")[0]) for fault in caught.value.faults] == [
        (1, "storage_per_gib_month"),
        (3, "per_1000_requests.put"),
        (4, "unknown key storige"),
    ]


@pytest.mark.parametrize("text", ["- a list\n", "{", "\x00"])
def test_content_that_is_no_price_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_prices(written(tmp_path, text))


def test_missing_price_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_prices(tmp_path / "none.yaml")
