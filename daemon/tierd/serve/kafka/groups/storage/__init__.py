"""Groups in the metadata store: their rows, the claim of a coordinator, and its writes."""
