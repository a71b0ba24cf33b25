"""A bucket of S3, or of any store that speaks S3, as an object store."""

from tierd.remote.backends.s3.s3_object_store import S3ObjectStore
from tierd.remote.backends.s3.s3_settings import ObjectOptions, S3Bucket, S3Keys, S3Network, customer_key_of

__all__ = ["ObjectOptions", "S3Bucket", "S3Keys", "S3Network", "S3ObjectStore", "customer_key_of"]
