"""Settings of connections, as tests want them: short deadlines, no certificates."""

from tierd.config import KafkaConnectionSettings


def plaintext(*servers: str, request_timeout_s: float = 5.0, refresh_s: float = 0.05) -> KafkaConnectionSettings:
    """Return settings of an unencrypted connection."""
    return KafkaConnectionSettings(
        bootstrap_servers=servers,
        request_timeout_s=request_timeout_s,
        connect_timeout_s=max(0.5, request_timeout_s),
        refresh_s=refresh_s,
    )
