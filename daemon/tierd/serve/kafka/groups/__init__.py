"""Consumer groups of the read endpoint: the classic protocol, with commits in the metadata store."""
