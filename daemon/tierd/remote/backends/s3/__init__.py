"""A bucket of S3, or of any store that speaks S3, as an object store."""

from tierd.remote.backends.s3.s3_object_store import S3ObjectStore
from tierd.remote.backends.s3.s3_options import ObjectOptions, customer_key_of
from tierd.remote.backends.s3.s3_settings import S3Bucket, S3Keys, S3Network

__all__ = ["ObjectOptions", "S3Bucket", "S3Keys", "S3Network", "S3ObjectStore", "customer_key_of"]
