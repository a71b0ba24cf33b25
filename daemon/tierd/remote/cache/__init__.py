"""Bytes of the object store kept on local disk. Nothing here is ever the only copy of anything."""
