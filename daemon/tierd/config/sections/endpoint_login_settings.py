"""Logins and certificates of the read endpoint, and what each principal may do there."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from tierd.config.places import Location, PlacedFaultsError
from tierd.config.scram_verifier import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES, ScramVerifier
from tierd.config.section import Settings
from tierd.config.values import AbsolutePath, Duration, Pattern, Rate, Text, WholeNumber

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_NonEmptySecret = Annotated[SecretStr, Field(min_length=1)]


def _hash_of(hash_name: str) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        ScramVerifier.parse(value.get_secret_value(), hash_name)
        return value

    return AfterValidator(check)


class EndpointTlsSettings(Settings):
    """Certificates of the listeners ssl and sasl_ssl. Changed files are used from the next handshake on."""

    certificate_file: AbsolutePath | None = Field(
        None, description="PEM certificate of this host, with the certificates between it and its authority"
    )
    key_file: AbsolutePath | None = Field(None, description="PEM key of certificate_file")
    key_password: SecretStr | None = Field(None, description="password of key_file")
    key_password_file: AbsolutePath | None = Field(
        None, description="file with the password, in place of the key above"
    )
    client_ca_file: AbsolutePath | None = Field(
        None, description="PEM certificates of the authorities of clients; needed for client_certificates"
    )
    client_certificates: Literal["none", "requested", "required"] = Field(
        "none",
        description="requested: clients may show a certificate; required: they must; on ssl listeners the principal is "
        "User: and its subject, such as User:CN=etl,O=Example",
    )

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> "EndpointTlsSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            message = "certificate_file and key_file belong together: set both, or neither"
            raise PlacedFaultsError([(("certificate_file",), message)])
        return self

    @model_validator(mode="after")
    def _clients_have_an_authority(self) -> "EndpointTlsSettings":
        if self.client_certificates != "none" and self.client_ca_file is None:
            message = f"{self.client_certificates} needs client_ca_file, which signs the certificates of clients"
            raise PlacedFaultsError([(("client_certificates",), message)])
        return self


class EndpointUserSettings(Settings):
    """One user, with a password, or with the hashes of one as Kafka writes them."""

    name: Text = Field(min_length=1, max_length=255, description="name of the user", examples=["etl"])
    password: _NonEmptySecret | None = Field(
        None, description="password, for every mechanism", examples=["${TIERD_ENDPOINT_PASSWORD}"]
    )
    password_file: AbsolutePath | None = Field(None, description="file with the password, in place of the key above")
    scram_sha_256: Annotated[SecretStr, _hash_of("sha256")] | None = Field(
        None,
        description="hash in place of a password: salt=...,stored_key=...,server_key=...,iterations=...; for "
        "SCRAM-SHA-256 and PLAIN",
    )
    scram_sha_256_file: AbsolutePath | None = Field(None, description="file with the hash, in place of the key above")
    scram_sha_512: Annotated[SecretStr, _hash_of("sha512")] | None = Field(
        None, description="hash in the same form, for SCRAM-SHA-512 and PLAIN"
    )
    scram_sha_512_file: AbsolutePath | None = Field(None, description="file with the hash, in place of the key above")

    @property
    def has_hash(self) -> bool:
        """Return True if there are hashes in place of a password."""
        return self.password is None and not (self.scram_sha_256 is None and self.scram_sha_512 is None)

    def secret_for(self, mechanism: str) -> SecretStr | None:
        """Return the hash for a mechanism of SCRAM, None where the user has none."""
        return {"SCRAM-SHA-256": self.scram_sha_256, "SCRAM-SHA-512": self.scram_sha_512}.get(mechanism)

    @model_validator(mode="after")
    def _one_secret(self) -> "EndpointUserSettings":
        hashes = [name for name in ("scram_sha_256", "scram_sha_512") if getattr(self, name) is not None]
        if self.password is not None and hashes:
            raise PlacedFaultsError([((hashes[0],), f"password and {hashes[0]} are both set: remove one")])
        if self.password is None and not self.has_hash:
            raise PlacedFaultsError([(("name",), f"user {self.name} has no password: set password or password_file")])
        return self


class EndpointSaslSettings(Settings):
    """Logins on the listeners sasl_plaintext and sasl_ssl. A change takes effect at the next login."""

    mechanisms: tuple[Mechanism, ...] = Field(
        ("SCRAM-SHA-512",), min_length=1, description="mechanisms that clients may use"
    )
    iterations: WholeNumber = Field(
        8192,
        ge=MIN_ITERATIONS,
        le=MAX_ITERATIONS,
        description="rounds of the hash that tierd makes of a password: more make a guess and a login more expensive",
    )
    max_reauth_s: Duration | None = Field(
        None,
        alias="max_reauth",
        ge=1,
        description="time after which a client has to log in again on its connection; none: the login does not end",
    )
    users: tuple[EndpointUserSettings, ...] = Field((), description="users that may log in")

    @model_validator(mode="after")
    def _names_are_unique(self) -> "EndpointSaslSettings":
        seen: set[str] = set()
        faults: list[tuple[Location, str]] = []
        for index, user in enumerate(self.users):
            if user.name in seen:
                faults.append((("users", index, "name"), f"user {user.name} is listed twice: remove one"))
            seen.add(user.name)
        if faults:
            raise PlacedFaultsError(faults)
        return self

    @model_validator(mode="after")
    def _every_user_can_log_in(self) -> "EndpointSaslSettings":
        offered = ", ".join(self.mechanisms)
        faults: list[tuple[Location, str]] = [
            (("users", index, "name"), f"user {user.name} cannot log in: it has no hash for any of {offered}")
            for index, user in enumerate(self.users)
            if user.has_hash and not any(map(user.secret_for, self._hashes_of_use()))
        ]
        if faults:
            raise PlacedFaultsError(faults)
        return self

    def _hashes_of_use(self) -> tuple[str, ...]:
        return tuple(SCRAM_HASHES) if "PLAIN" in self.mechanisms else self.mechanisms


class EndpointAccessRule(Settings):
    """One rule: what some principals may read. The rules of a principal add up."""

    principals: tuple[Pattern, ...] = Field(
        (".*",), min_length=1, description="principals of the rule, such as User:etl, or User:ANONYMOUS without a login"
    )
    topics: tuple[Pattern, ...] = Field((), description="topics that they may see and read")
    groups: tuple[Pattern, ...] = Field((), description="consumer groups that they may see, join, commit and delete")


class EndpointQuotaRule(Settings):
    """One quota. For each principal, the last rule that sets a limit wins; each principal has the limit for itself."""

    principals: tuple[Pattern, ...] = Field((".*",), min_length=1, description="principals of the rule")
    bytes_per_second: Rate = Field(None, gt=0, description="rate of the answers to one principal")
    requests_per_second: WholeNumber | None = Field(None, ge=1, description="rate of the requests of one principal")
    connections: WholeNumber | None = Field(None, ge=1, description="connections of one principal at a time")
