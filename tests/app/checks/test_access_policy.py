import json

import pytest

from tierd.app.checks.access_policy import access_policy
from tierd.config import RemoteSettings


def s3(**more: object) -> RemoteSettings:
    return RemoteSettings.model_validate({"backend": "s3", "key_prefix": "tier", "s3": {"bucket": "b", **more}})


def actions(settings: RemoteSettings) -> list[str]:
    statements = access_policy(settings, cluster_id="c")["Statement"]
    assert isinstance(statements, list)
    found: list[str] = []
    for statement in statements:
        assert isinstance(statement, dict)
        assert isinstance(statement["Action"], list)
        found += [str(action) for action in statement["Action"]]
    return found


def test_s3_policy_allows_the_used_actions_and_no_others() -> None:
    assert access_policy(s3(), cluster_id="c") == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TierdObjects",
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                "Resource": "arn:aws:s3:::b/tier/c/*",
            },
            {
                "Sid": "TierdListings",
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": "arn:aws:s3:::b",
                "Condition": {"StringLikeIfExists": {"s3:prefix": ["tier/", "tier/c/*"]}},
            },
            {
                "Sid": "TierdUploads",
                "Effect": "Allow",
                "Action": ["s3:ListBucketMultipartUploads"],
                "Resource": "arn:aws:s3:::b",
            },
            {
                "Sid": "TierdErasure",
                "Effect": "Allow",
                "Action": ["s3:DeleteObjectVersion"],
                "Resource": "arn:aws:s3:::b/tier/c/*",
            },
            {
                "Sid": "TierdVersions",
                "Effect": "Allow",
                "Action": ["s3:ListBucketVersions"],
                "Resource": "arn:aws:s3:::b",
            },
        ],
    }


def test_policy_for_an_unknown_cluster_covers_any_cluster() -> None:
    assert "arn:aws:s3:::b/tier/*/*" in json.dumps(access_policy(s3(), cluster_id=None))


def test_enabled_features_add_their_actions_to_the_policy() -> None:
    assert "s3:PutObjectTagging" not in actions(s3())
    assert "s3:PutObjectTagging" in actions(s3(tags={"team": "a"}))
    assert {"kms:GenerateDataKey", "kms:Decrypt"} <= set(actions(s3(sse={"type": "kms", "kms_key_id": "k"})))
    assert not any(action.startswith("kms:") for action in actions(s3(sse={"type": "s3"})))


@pytest.mark.parametrize(
    ("key", "resource"), [("k", "arn:aws:kms:*:*:key/k"), ("arn:aws:kms:eu:1:key/k", "arn:aws:kms:eu:1:key/k")]
)
def test_policy_names_the_encryption_key(key: str, resource: str) -> None:
    assert f'"{resource}"' in json.dumps(access_policy(s3(sse={"type": "kms", "kms_key_id": key}), cluster_id="c"))


def test_policies_of_gcs_and_azure_are_roles() -> None:
    gcs = RemoteSettings.model_validate({"backend": "gcs", "gcs": {"bucket": "b"}})
    assert access_policy(gcs, cluster_id="c")["includedPermissions"] == [
        "storage.objects.create",
        "storage.objects.delete",
        "storage.objects.get",
        "storage.objects.list",
    ]
    azure = {"backend": "azure", "azure": {"container": "c", "account": "a"}}
    assert "DataActions" in access_policy(RemoteSettings.model_validate(azure), cluster_id="c")
    azure["azure"] = {"container": "c", "account": "a", "account_key": "k"}
    assert "sharedAccessSignature" in access_policy(RemoteSettings.model_validate(azure), cluster_id="c")


def test_policy_of_a_directory_names_a_user() -> None:
    filesystem = RemoteSettings.model_validate({"backend": "filesystem", "filesystem": {"path": "/mnt/tier"}})
    assert access_policy(filesystem, cluster_id=None)["directory"] == "/mnt/tier"
