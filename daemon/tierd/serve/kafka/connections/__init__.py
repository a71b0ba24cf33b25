"""Connections of clients: bytes over a socket or TLS, logins, and one request after the other in order."""
