"""Bytes of the object store kept on local disk: a copy of each is in the store."""
