"""Least permissions that tierd needs in the object store, for the features that are switched on. Pure."""

from typing import TypeAlias

from pydantic import JsonValue

from tierd.config import AzureSettings, GcsSettings, RemoteSettings, S3Settings

Policy: TypeAlias = dict[str, JsonValue]


def access_policy(settings: RemoteSettings, *, cluster_id: str | None) -> Policy:
    """Return the permissions that an administrator of the store has to grant, in the store's own form.

    Args:
        settings: of the object store.
        cluster_id: below which everything is stored; None allows every cluster's.
    """
    if settings.s3 is not None and settings.backend == "s3":
        return _s3_policy(settings.s3, settings.key_prefix, cluster_id or "*")
    if settings.gcs is not None and settings.backend == "gcs":
        return _gcs_role(settings.gcs)
    if settings.azure is not None and settings.backend == "azure":
        return _azure_role(settings.azure)
    if settings.backend != "filesystem":
        return {"backend": settings.backend, "needs": "what the documentation of its package says"}
    assert settings.filesystem is not None, "the schema asks for the section of the backend"
    return {"directory": str(settings.filesystem.path), "needs": "to be read and written by the user of tierd"}


def _s3_policy(s3: S3Settings, key_prefix: str, cluster_id: str) -> Policy:
    folder = f"{key_prefix}/" if key_prefix else ""
    tier = f"{folder}{cluster_id}/*"
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    if s3.tags:
        objects.append("s3:PutObjectTagging")
    statements: list[JsonValue] = [
        _allow("TierdObjects", objects, f"arn:aws:s3:::{s3.bucket}/{tier}"),
        {
            **_allow("TierdListings", ["s3:ListBucket"], f"arn:aws:s3:::{s3.bucket}"),
            # IfExists: the store reports a missing key only to a caller that may list, and checks without a prefix.
            "Condition": {"StringLikeIfExists": {"s3:prefix": [folder, tier]}},
        },
        _allow("TierdUploads", ["s3:ListBucketMultipartUploads"], f"arn:aws:s3:::{s3.bucket}"),
        # Only tierd erase needs these two: a bucket that keeps versions keeps deleted objects.
        _allow("TierdErasure", ["s3:DeleteObjectVersion"], f"arn:aws:s3:::{s3.bucket}/{tier}"),
        _allow("TierdVersions", ["s3:ListBucketVersions"], f"arn:aws:s3:::{s3.bucket}"),
    ]
    if s3.sse.type == "kms":
        key = s3.sse.kms_key_id or "*"
        resource = key if key == "*" or key.startswith("arn:") else f"arn:aws:kms:*:*:key/{key}"
        statements.append(_allow("TierdKey", ["kms:GenerateDataKey", "kms:Decrypt"], resource))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: list[str], resource: str) -> dict[str, JsonValue]:
    return {"Sid": sid, "Effect": "Allow", "Action": [*actions], "Resource": resource}


def _gcs_role(gcs: GcsSettings) -> Policy:
    return {
        "title": f"tierd on bucket {gcs.bucket}",
        "stage": "GA",
        "includedPermissions": [
            "storage.objects.create",
            "storage.objects.delete",
            "storage.objects.get",
            "storage.objects.list",
        ],
    }


def _azure_role(azure: AzureSettings) -> Policy:
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    if azure.sas_token is not None or azure.account_key is not None:
        return {"sharedAccessSignature": _sas(azure)}
    return {
        "Name": f"tierd on container {azure.container}",
        "IsCustom": True,
        "Actions": ["Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action"],
        "DataActions": [f"{blobs}/read", f"{blobs}/write", f"{blobs}/add/action", f"{blobs}/delete"],
    }


def _sas(azure: AzureSettings) -> dict[str, JsonValue]:
    return {
        "resource": f"container {azure.container} of account {azure.account}",
        "permissions": "rwcdl",
        "instead of": "an account key, which allows everything",
    }
