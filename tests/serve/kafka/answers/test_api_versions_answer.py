"""Answers to ApiVersions."""

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode

from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tierd.serve.kafka.wire.api_table import API_TABLE

_REQUEST = ApiVersionsRequest(client_software_name="client", client_software_version="1")


@pytest.mark.parametrize("version", versions(18))
async def test_api_versions_answers_the_whole_table_without_features(version: int) -> None:
    answer = await AskedEndpoint().answer(_REQUEST, ApiVersionsResponse, version=version)
    assert answer.error_code is ErrorCode.none
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert told == {key: (api.min_version, api.max_version) for key, api in API_TABLE.items()}
    assert answer.supported_features == ()
    assert answer.finalized_features == ()
    assert answer.finalized_features_epoch == -1
    assert not answer.zk_migration_ready


async def test_api_versions_has_what_clients_choose_their_ways_by() -> None:
    answer = await AskedEndpoint().answer(_REQUEST, ApiVersionsResponse)
    offered = {int(each.api_key): range(each.min_version, each.max_version + 1) for each in answer.api_keys}
    assert {3, 7} <= set(offered[0])  # librdkafka: message format 2, zstd
    assert 11 in offered[2]  # ListOffsets of places up to -6
    assert 68 not in offered  # ConsumerGroupHeartbeat
    assert 71 not in offered  # GetTelemetrySubscriptions
