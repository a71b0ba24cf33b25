"""One module per kind of store; each is imported only when it is configured."""
