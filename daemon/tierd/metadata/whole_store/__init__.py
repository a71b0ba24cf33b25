"""Operations on the whole metadata of a cluster: the identity of its store, export, import and rebuild."""
