"""Settings of the control plane."""

import pytest
from pydantic import ValidationError

from tierd.config import LeadershipSettings, MqttSettings, MqttTlsSettings


def test_control_plane_is_off_without_an_address() -> None:
    assert not MqttSettings.model_validate({}).is_enabled


def test_every_request_is_answered_by_default_and_none_of_them_deletes() -> None:
    verbs = MqttSettings.model_validate({}).requests
    assert "status" in verbs
    assert not any(word in verb for verb in verbs for word in ("delete", "expire", "erase"))


def test_broker_on_another_host_needs_tls_or_the_explicit_switch() -> None:
    with pytest.raises(ValidationError, match=r"without TLS on another host: set control\.mqtt\.tls\.ca_file"):
        MqttSettings.model_validate({"address": "mqtt.example.com:1883"})
    assert MqttSettings.model_validate({"address": "mqtt.example.com:1883", "allow_plaintext": True}).is_enabled
    assert MqttSettings.model_validate({"address": "mqtt.example.com:8883", "tls": {"ca_file": "/ca.pem"}}).is_enabled


@pytest.mark.parametrize("address", ["127.0.0.1:1883", "localhost:1883", "[::1]:1883"])
def test_broker_on_this_host_needs_no_tls(address: str) -> None:
    assert MqttSettings.model_validate({"address": address}).is_enabled


@pytest.mark.parametrize(
    ("tls", "place"),
    [
        ({"ca_file": "/ca.pem", "certificate_file": "/c.pem"}, "certificate_file and key_file belong together"),
        ({"certificate_file": "/c.pem", "key_file": "/k.pem"}, "the authority of the MQTT broker"),
    ],
)
def test_files_of_tls_belong_together(tls: dict[str, str], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        MqttTlsSettings.model_validate(tls)


def test_password_needs_a_user_and_does_not_show() -> None:
    with pytest.raises(ValidationError, match="username"):
        MqttSettings.model_validate({"password": "secret-word"})
    assert "secret-word" not in repr(MqttSettings.model_validate({"username": "one", "password": "secret-word"}))


def test_request_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="requests"):
        MqttSettings.model_validate({"requests": ["delete-partition"]})


def test_leaders_may_come_from_announcements() -> None:
    assert LeadershipSettings.model_validate({"source": "mqtt"}).source == "mqtt"
