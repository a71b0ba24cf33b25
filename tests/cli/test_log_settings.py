"""Option ``--set`` of the log commands."""

import pytest

from tierd.cli.log_settings import parse_settings
from tierd.errors import LogConfigError


def test_setting_applies_to_all_topics_or_to_one() -> None:
    settings = parse_settings(["segment.bytes=1000", "orders:segment.bytes=2000", "index.interval.bytes=1"])
    assert settings.of("other").segment_bytes == 1000
    assert settings.of("orders").segment_bytes == 2000
    assert settings.of("orders").index_interval_bytes == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("segment.byte=1", "segment.bytes"),
        ("orders:segmnt.ms=5", "segment.ms"),
        ("zzz=1", "one of cleanup.policy"),
        ("segment.bytes", "segment.bytes=1048576"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest_name(text: str, said: str) -> None:
    with pytest.raises(LogConfigError) as caught:
        parse_settings([text])
    assert said in caught.value.remedy


@pytest.mark.parametrize("text", ["segment.bytes=lots", "orders:segment.bytes=1", "cleanup.policy=never"])
def test_a_value_that_a_setting_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(LogConfigError):
        parse_settings([text])
