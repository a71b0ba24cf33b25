"""Settings of the Mosquitto of tests: those of ``config/`` with other paths, and a loopback listener without TLS."""

from pathlib import Path

from tests.services.certificates import Authority

_CONFIG = Path(__file__).parents[2] / "config"
NODES = ("1", "2", "3", "operator")
"""Common names of the certificates; node 3 may not announce leaders."""


def write_settings(data: Path, *, port: int, tls_port: int) -> Path:
    """Write the settings, the access list and, once, the certificates into ``data``; return the file to start with."""
    certificates = data / "certs"
    if not certificates.exists():
        authority = Authority(certificates, "mqtt")
        authority.issue("broker", hosts=("127.0.0.1", "localhost"))
        for node in NODES:
            authority.issue(node)
        authority.ca_file.rename(certificates / "ca.pem")
        Authority(certificates / "foreign", "foreign").issue("1")
    text = (_CONFIG / "mosquitto.conf").read_text()
    for shipped, own in {
        "/etc/mosquitto/certs": str(certificates),
        "/etc/mosquitto/tierd.acl": str(data / "tierd.acl"),
        "/var/lib/mosquitto/": f"{data}/",
        "listener 8883": f"listener {tls_port} 127.0.0.1",
        "autosave_interval 30": "autosave_interval 1",
    }.items():
        assert shipped in text, f"{shipped} is in config/mosquitto.conf"
        text = text.replace(shipped, own)
    settings = data / "mosquitto.conf"
    settings.write_text(f"user root\n{text}\nlistener {port} 127.0.0.1\nallow_anonymous true\n")
    (data / "tierd.acl").write_text((_CONFIG / "mosquitto.acl").read_text())
    return settings
