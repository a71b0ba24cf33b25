"""Configuration with a secret in every place that can hold one, for tests that look for them in what tierd shows."""

from pathlib import Path
from typing import Final

SECRETS: Final = tuple(
    f"{where}-3cr3t/+="
    for where in (
        *("access", "secret", "session", "proxy", "endpoint", "ring", "dsn", "redis", "sasl", "keypw", "plain"),
        *("mqtt", "spark", "jaas", "argument", "unknown", "environment", "default", "file", "credential", "azure"),
        *("sas", "comment", "customer"),
    )
)
"""Texts of a form that no pattern of masking knows, with the characters that URLs and JSON write in another way."""

_TEXT: Final = """
# comment-3cr3t/+=
state_dir: ./state
log_dirs: [{path: %(log_dir)s}]
remote:
  backend: s3
  s3:
    bucket: my-bucket
    endpoint_url: "http://someone:endpoint-3cr3t%%2F%%2B%%3D@127.0.0.1:9"
    region: eu-central-1
    access_key_id: access-3cr3t/+=
    secret_access_key: secret-3cr3t/+=
    session_token: session-3cr3t/+=
    proxy_url: "http://someone:proxy-3cr3t/+=@127.0.0.1:9"
    sse: {customer_key: customer-3cr3t/+=}
    secret_acces_key: unknown-3cr3t/+=
  azure: {account_key: azure-3cr3t/+=, sas_token: "sv=1&sig=sas-3cr3t/+="}
  encryption: {keys: [{id: one, key: ring-3cr3t/+=}]}
metadata:
  postgres: {dsn: "postgresql://tierd:dsn-3cr3t/+=@127.0.0.1/tierd"}
  redis: {url: "redis://:redis-3cr3t/+=@127.0.0.1"}
leadership:
  kafka:
    bootstrap_servers: ["127.0.0.1:9"]
    sasl_username: tierd
    sasl_password: sasl-3cr3t/+=
    key_password: "${SECRET_OF_A_TEST}"
kafka:
  tls: {key_password: keypw-3cr3t/+=}
  sasl: {users: [{name: etl, password: plain-3cr3t/+=}, {name: audit, password_file: %(secret_file)s}]}
push:
  tls: {key_password: credential:push-key}
control:
  mqtt: {username: tierd, password: mqtt-3cr3t/+=, tls: {key_password: "${NOT_SET_IN_A_TEST:-default-3cr3t/+=}"}}
pipeline:
  authenticate_secret: spark-3cr3t/+=
  spark_conf: {spark.sasl.jaas.config: "ScramLoginModule required username=u password='jaas-3cr3t/+=';"}
drill: {command: [/usr/bin/true, --token, argument-3cr3t/+=]}
"""


def file_full_of_secrets(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write the file, and the files that it names, into ``folder``; return it and the environment that it needs."""
    credentials = folder / "credentials"
    credentials.mkdir()
    (credentials / "push-key").write_text("credential-3cr3t/+=")
    (folder / "password").write_text("file-3cr3t/+=\n")
    file = folder / "tierd.yaml"
    file.write_text(_TEXT % {"log_dir": folder / "kafka", "secret_file": folder / "password"})
    return file, {"SECRET_OF_A_TEST": "environment-3cr3t/+=", "CREDENTIALS_DIRECTORY": str(credentials)}
