"""The advertised requests enable what clients need, and nothing that the endpoint refuses to be."""

import pytest
from kio.schema.index import schema_name_map

from tierd.serve.kafka.wire.api_table import API_TABLE

LIBRDKAFKA = {  # rdkafka_feature.c: (api key, lowest, highest version that the feature looks for)
    "MsgVer2": [(0, 3, 3), (1, 4, 4)],
    "ApiVersion": [(18, 0, 0)],
    "BrokerGroupCoordinator": [(10, 0, 0)],
    "BrokerBalancedConsumer": [(10, 0, 0), (8, 1, 2), (9, 1, 1), (11, 0, 0), (14, 0, 0), (12, 0, 0), (13, 0, 0)],
    "SaslHandshake": [(17, 0, 0)],
    "LZ4": [(10, 0, 0)],
    "OffsetTime": [(2, 1, 1)],
    "IdempotentProducer": [(22, 0, 0)],
    "ZSTD": [(0, 7, 7), (1, 10, 10)],
    "SaslAuthReq": [(17, 1, 1), (36, 0, 0)],
}


@pytest.mark.parametrize("feature", LIBRDKAFKA)
def test_feature_of_librdkafka_is_enabled(feature: str) -> None:
    for api_key, lowest, highest in LIBRDKAFKA[feature]:
        api = API_TABLE[api_key]
        assert api.min_version <= highest, feature
        assert lowest <= api.max_version, feature


@pytest.mark.parametrize(
    "api_key",
    [68, 69, 71, 72, 76, 77, 78, 79, 88, 89],
    ids=["groups-848", "describe-848", "telemetry", "push", "share", "share", "share", "share", "streams", "streams"],
)
def test_protocol_that_the_endpoint_does_not_speak_is_not_advertised(api_key: int) -> None:
    assert api_key not in API_TABLE


def test_every_version_between_the_bounds_has_a_schema() -> None:
    for api in API_TABLE.values():
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api.name).lstrip("_")
        assert sorted(schema_name_map[name]) == list(range(api.min_version, api.max_version + 1))


def test_table_ascends_by_api_key() -> None:
    assert list(API_TABLE) == sorted(API_TABLE)
