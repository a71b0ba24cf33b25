"""The object store: where the tier is, and what becomes of bytes on their way there."""

from typing import Literal

from pydantic import Field, SecretStr, SerializeAsAny, model_validator

from tierd.config.connectors import OBJECT_STORE, PluginSettings, plugin_faults
from tierd.config.places import Location, PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.values import (
    MIB,
    AbsolutePath,
    Base64Key,
    Duration,
    KeyPrefix,
    MebibyteSize,
    OwnPath,
    ProxyUrl,
    Switch,
    Tags,
    Text,
    Url,
    WholeNumber,
)


class FilesystemSettings(Settings):
    """Objects as files below one directory."""

    path: OwnPath = Field(
        description="directory of the objects, on another disk or a network mount", examples=["/mnt/tier"]
    )


class SseSettings(Settings):
    """Encryption by the store. ``remote.encryption`` is independent of it, and needs no trust in the store."""

    type: Literal["none", "s3", "kms", "c"] = Field(
        "none", description="none: the setting of the bucket; s3: SSE-S3; kms: SSE-KMS; c: SSE-C, with your key"
    )
    kms_key_id: Text | None = Field(None, description="for kms: id of the key; default: the account's key for S3")
    customer_key: Base64Key | None = Field(
        None, description="for c: base64 of 32 bytes; if the key is lost, the tier is lost"
    )
    customer_key_file: AbsolutePath | None = Field(None, description="file with the key, in place of the key above")

    @model_validator(mode="after")
    def _type_has_its_key(self) -> "SseSettings":
        if self.type == "c" and self.customer_key is None:
            raise PlacedFaultsError([(("type",), "type c needs customer_key or customer_key_file")])
        return self


class S3Settings(Settings):
    """Objects in an S3 bucket, of AWS or of another S3 store with conditional writes."""

    bucket: Text = Field(min_length=1, description="name of the bucket, which must exist", examples=["tierd"])
    endpoint_url: Url | None = Field(
        None, description="address of a store other than AWS, such as https://s3.example.com"
    )
    region: Text | None = Field(None, description="region of the bucket; default: the region of the AWS environment")
    part_size_bytes: MebibyteSize = Field(
        25 * MIB,
        alias="part_size",
        ge=5 * MIB,
        le=5 * 1024 * MIB,
        description="size of a part of a multipart upload, a multiple of 1MiB; an upload has at most 10,000 parts",
    )
    max_concurrency: WholeNumber = Field(
        4, ge=1, le=64, description="number of parts and requests at the same time; more than 4 are seldom faster"
    )
    path_style: Switch = Field(False, description="true: the bucket is in the path of the URL; false: in the host name")
    storage_class: Text | None = Field(
        None,
        min_length=1,
        description="storage class of .log objects, such as STANDARD_IA; default: the class of the bucket",
    )
    access_key_id: SecretStr | None = Field(
        None, description="access key; default: the AWS environment, profile or instance role"
    )
    access_key_id_file: AbsolutePath | None = Field(
        None, description="file with the access key, in place of the key above"
    )
    secret_access_key: SecretStr | None = Field(None, description="secret key of the access key")
    secret_access_key_file: AbsolutePath | None = Field(
        None, description="file with the secret key, in place of the key above"
    )
    session_token: SecretStr | None = Field(None, description="token of temporary keys")
    session_token_file: AbsolutePath | None = Field(None, description="file with the token, in place of the key above")
    sse: SseSettings = Field(default_factory=SseSettings, description="encryption by the store")
    tags: Tags = Field({}, description="tags of every object, name: value")
    proxy_url: ProxyUrl | None = Field(None, description="HTTP proxy before the store; it may have user:password@")
    ca_file: AbsolutePath | None = Field(
        None, description="PEM certificates that tierd trusts for endpoint_url; default: those of the system"
    )
    connect_timeout_s: Duration = Field(
        10.0, alias="connect_timeout", gt=0, description="longest wait for a connection"
    )
    read_timeout_s: Duration = Field(
        60.0, alias="read_timeout", gt=0, description="longest time without a byte of the store during a request"
    )

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "S3Settings":
        if (self.access_key_id is None) != (self.secret_access_key is None):
            given, missing = (
                ("access_key_id", "secret_access_key")
                if self.secret_access_key is None
                else ("secret_access_key", "access_key_id")
            )
            raise PlacedFaultsError(
                [((given,), f"{given} is set without {missing}: set both, or neither for the AWS environment")]
            )
        return self


class GcsSettings(Settings):
    """Objects in a Google Cloud Storage bucket."""

    bucket: Text = Field(min_length=1, description="name of the bucket, which must exist", examples=["tierd"])
    endpoint_url: Url | None = Field(None, description="address of an emulator; tierd sends no credentials to it")
    credentials_file: AbsolutePath | None = Field(
        None, description="JSON key of a service account; default: the account of the environment or of the instance"
    )
    connect_timeout_s: Duration = Field(
        10.0, alias="connect_timeout", gt=0, description="longest wait for a connection"
    )
    read_timeout_s: Duration = Field(
        60.0, alias="read_timeout", gt=0, description="longest time without a byte of the store during a request"
    )


class AzureSettings(Settings):
    """Objects in a container of Azure Blob Storage."""

    container: Text = Field(min_length=1, description="name of the container, which must exist", examples=["tierd"])
    account: Text = Field(min_length=1, description="name of the storage account", examples=["mytier"])
    account_key: SecretStr | None = Field(
        None, description="key of the account; default: the identity of the environment"
    )
    account_key_file: AbsolutePath | None = Field(None, description="file with the key, in place of the key above")
    sas_token: SecretStr | None = Field(None, description="shared access signature, in place of account_key")
    sas_token_file: AbsolutePath | None = Field(None, description="file with the signature, in place of the key above")
    endpoint_url: Url | None = Field(None, description="address of an emulator or a sovereign cloud")
    connect_timeout_s: Duration = Field(
        10.0, alias="connect_timeout", gt=0, description="longest wait for a connection"
    )
    read_timeout_s: Duration = Field(
        60.0, alias="read_timeout", gt=0, description="longest time without a byte of the store during a request"
    )

    @model_validator(mode="after")
    def _one_credential(self) -> "AzureSettings":
        if self.account_key is not None and self.sas_token is not None:
            raise PlacedFaultsError([(("sas_token",), "account_key and sas_token are both set: remove one")])
        return self


class CompressionSettings(Settings):
    """Compression of log chunks before the upload. Chunks that producers have compressed stay as they are."""

    type: Literal["none", "zstd"] = Field("none", description="compression of new segments")
    level: WholeNumber = Field(
        3, ge=1, le=19, description="level of zstd; a higher level gives smaller chunks and takes longer"
    )


class EncryptionKeySettings(Settings):
    """One key of the ring."""

    id: Text = Field(
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of the key in manifests; never use an id for a second key",
        examples=["2026-01"],
    )
    key: Base64Key | None = Field(
        None, description="base64 of 32 random bytes: openssl rand -base64 32", examples=["${TIERD_ENCRYPTION_KEY}"]
    )
    key_file: AbsolutePath | None = Field(None, description="file with the key, in place of the key above")


class EncryptionSettings(Settings):
    """Encryption on this host, before the upload: AES-256-GCM, with a data key for each segment."""

    enabled: Switch = Field(False, description="true: encrypt new segments; existing segments stay as they are")
    active_key: Text | None = Field(None, description="id of the key that wraps the data keys of new segments")
    keys: tuple[EncryptionKeySettings, ...] = Field(
        (), description="the key ring: keep a key here as long as it wraps the data key of any segment"
    )

    @model_validator(mode="after")
    def _keys_are_whole(self) -> "EncryptionSettings":
        faults: list[tuple[Location, str]] = []
        seen: set[str] = set()
        for index, key in enumerate(self.keys):
            if key.key is None:
                faults.append((("keys", index), f"key {key.id} needs key or key_file"))
            if key.id in seen:
                faults.append((("keys", index, "id"), f"key {key.id} is listed twice: ids are never reused"))
            seen.add(key.id)
        if faults:
            raise PlacedFaultsError(faults)
        return self

    @model_validator(mode="after")
    def _active_key_is_there(self) -> "EncryptionSettings":
        if self.enabled and self.active_key not in {key.id for key in self.keys}:
            message = f"no key of keys has the id {self.active_key}" if self.active_key else "enabled needs active_key"
            raise PlacedFaultsError([(("active_key",) if self.active_key else ("enabled",), message)])
        return self


class RetrySettings(Settings):
    """Repetition of store calls that failed retriably. The waits double, with 20 % jitter."""

    attempts: WholeNumber = Field(
        5,
        ge=1,
        le=100,
        description="largest number of times that tierd sends one request of a call, the first time included",
    )
    backoff_s: Duration = Field(0.5, alias="backoff", gt=0, description="wait after the first failure")
    max_backoff_s: Duration = Field(30.0, alias="max_backoff", gt=0, description="longest wait between two attempts")


class RemoteSettings(Settings):
    """The object store: where the tier is."""

    backend: Text = Field(
        description="filesystem, s3, gcs or azure, or a plug-in; the section of that name is required",
        examples=["s3"],
    )
    key_prefix: KeyPrefix = Field(
        "",
        description="begin of all keys, such as prod/tier; at most 127 bytes; a change leaves old segments readable",
    )
    chunk_size_bytes: MebibyteSize = Field(
        4 * MIB,
        alias="chunk_size",
        ge=MIB,
        le=1024 * MIB,
        description="size of a chunk, the unit of checksums and of ranged reads; a multiple of 1MiB",
    )
    compression: CompressionSettings = Field(
        default_factory=CompressionSettings, description="settings for new segments"
    )
    encryption: EncryptionSettings = Field(default_factory=EncryptionSettings, description="settings for new segments")
    filesystem: FilesystemSettings | None = Field(None, description="settings of the filesystem backend")
    s3: S3Settings | None = Field(None, description="settings of the s3 backend")
    gcs: GcsSettings | None = Field(None, description="settings of the gcs backend")
    azure: AzureSettings | None = Field(None, description="settings of the azure backend")
    plugin: SerializeAsAny[PluginSettings] | None = Field(None, description="settings of a backend of another package")
    retry: RetrySettings = Field(default_factory=RetrySettings, description="repetition of failed calls")

    @model_validator(mode="after")
    def _backend_has_its_section(self) -> "RemoteSettings":
        if faults := plugin_faults(OBJECT_STORE, self.backend, self.plugin):
            raise PlacedFaultsError(faults)
        if self.backend in OBJECT_STORE.built_in and getattr(self, self.backend) is None:
            first = {"filesystem": "path", "azure": "container and account"}.get(self.backend, "bucket")
            message = f"backend {self.backend} needs the section remote.{self.backend}, with {first} at least"
            raise PlacedFaultsError([(("backend",), message)])
        return self
