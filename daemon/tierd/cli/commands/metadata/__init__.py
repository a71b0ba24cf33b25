"""``tierd metadata``: move the metadata of a cluster from one store to another."""
