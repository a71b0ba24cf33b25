import pytest

from tierd.remote.backends.azure import AzureCredentials
from tierd.remote.backends.s3 import S3Keys, S3Network

SECRET = "open sesame"


@pytest.mark.parametrize(
    "settings",
    [
        S3Keys(access_key_id=SECRET, secret_access_key=SECRET, session_token=SECRET),
        S3Network(proxy_url=f"http://user:{SECRET}@proxy"),
        AzureCredentials(account_key=SECRET, sas_token=SECRET),
    ],
)
def test_settings_of_a_client_do_not_show_their_secrets(settings: object) -> None:
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)
