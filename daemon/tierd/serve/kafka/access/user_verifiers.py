"""UserVerifiers: what the endpoint knows of its users, in place of passwords."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from tierd.config import SCRAM_HASHES, EndpointSaslSettings, ScramVerifier

PLAIN: Final = "PLAIN"
_SALT_BYTES: Final = 20
_SHAPES: Final = 256


@dataclass(frozen=True, slots=True)
class FoundUser:
    """A user, known or not. One that is not has a verifier that no password fits.

    Attributes:
        hash_name: hash function of the verifier.
    """

    name: str
    is_known: bool
    hash_name: str
    verifier: ScramVerifier = field(repr=False)

    def has_password(self, password: str) -> bool:
        """Return True if the user is known and has this password. Takes as long for every user."""
        salt, iterations = self.verifier.salt, self.verifier.iterations
        given = ScramVerifier.of_password(password, self.hash_name, salt=salt, iterations=iterations)
        return hmac.compare_digest(given.stored_key, self.verifier.stored_key) and self.is_known


class UserVerifiers:
    """Verifiers of all users for each mechanism. Immutable.

    A user that is not known gets a stand-in, made of its name and a secret: the same one at each login until the users
    are derived anew, with the hash, iterations and salt length of one of the users that are known.
    """

    def __init__(
        self, mechanisms: tuple[str, ...], verifiers: Mapping[str, Mapping[str, ScramVerifier]], *, secret: bytes
    ) -> None:
        """Take the verifiers by mechanism of SCRAM and name of the user."""
        self.mechanisms = mechanisms
        self._secret = secret
        self._by_mechanism: dict[str, dict[str, tuple[str, ScramVerifier]]] = {
            each: {name: (each, known) for name, known in verifiers.get(each, {}).items()} for each in SCRAM_HASHES
        }
        self._by_mechanism[PLAIN] = self._by_mechanism["SCRAM-SHA-256"] | self._by_mechanism["SCRAM-SHA-512"]
        self._shapes = {each: [*found.values()][:_SHAPES] for each, found in self._by_mechanism.items()}

    @classmethod
    def derive(
        cls, settings: EndpointSaslSettings, *, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> Self:
        """Make the verifiers of all users. Takes some milliseconds for each password: call it in a thread."""
        wanted = tuple(each for each in settings.mechanisms if each != PLAIN)
        verifiers: dict[str, dict[str, ScramVerifier]] = {each: {} for each in SCRAM_HASHES}
        for user in settings.users:
            for mechanism, hash_name in SCRAM_HASHES.items():
                if (text := user.secret_for(mechanism)) is not None:
                    verifiers[mechanism][user.name] = ScramVerifier.parse(text.get_secret_value(), hash_name)
                elif user.password is not None and mechanism in (wanted or ("SCRAM-SHA-512",)):
                    verifiers[mechanism][user.name] = ScramVerifier.of_password(
                        user.password.get_secret_value(),
                        hash_name,
                        salt=random_bytes(_SALT_BYTES),
                        iterations=settings.iterations,
                    )
        return cls(settings.mechanisms, verifiers, secret=random_bytes(32))

    def find(self, name: str, mechanism: str) -> FoundUser:
        """Return the user of that name for a login by ``mechanism``, or the stand-in of one."""
        stand_in = self._stand_in(name, mechanism)
        found = self._by_mechanism[mechanism].get(name)
        if found is None:
            return stand_in
        return FoundUser(name, is_known=True, hash_name=SCRAM_HASHES[found[0]], verifier=found[1])

    def _stand_in(self, name: str, mechanism: str) -> FoundUser:
        chosen = int.from_bytes(self._mixed("shape", name)[:8], "big")
        shapes = self._shapes[mechanism]
        alone = mechanism if mechanism in SCRAM_HASHES else "SCRAM-SHA-512"
        scram, like = shapes[chosen % len(shapes)] if shapes else (alone, None)
        size = hashlib.new(SCRAM_HASHES[scram]).digest_size
        salt_bytes = len(like.salt) if like else _SALT_BYTES
        salt = hashlib.shake_256(self._mixed("salt", name)).digest(salt_bytes)
        keys = hashlib.shake_256(self._mixed("keys", name)).digest(2 * size)
        verifier = ScramVerifier(salt, keys[:size], keys[size:], like.iterations if like else 4096)
        return FoundUser(name, is_known=False, hash_name=SCRAM_HASHES[scram], verifier=verifier)

    def _mixed(self, purpose: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{purpose}\0{name}".encode(), "sha256")
