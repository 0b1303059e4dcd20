"""What only the server's own secret can make or open: guest tokens, fingerprints, stored webhook secrets."""

from __future__ import annotations

import base64
import hmac
from functools import lru_cache

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pool_server.rules import tokens

MIN_SECRET_BYTES = 32
UNSEALED = 4_096


class Vault:
    """Keys derived from one secret of at least 32 bytes, one for each purpose."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the server's secret must have at least {MIN_SECRET_BYTES} bytes")
        self._guest_key = _derived(secret, b"formica guest tokens")
        self._fingerprint_key = _derived(secret, b"formica fingerprints")
        self._fernet = Fernet(base64.urlsafe_b64encode(_derived(secret, b"formica webhook secrets")))
        # Every look at the subscriptions asks for the same few; a rotated one has another ciphertext.
        self._unseal = lru_cache(maxsize=UNSEALED)(self._decrypted)

    def guest_token(self, issue_entity_id: str, nonce: str) -> str:
        """The token of one grant."""
        return tokens.guest_token(self._guest_key, issue_entity_id, nonce)

    def fingerprint(self, text: str) -> str:
        """A digest of ``text`` that only this server can check."""
        return hmac.new(self._fingerprint_key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()

    def seal(self, secret: str) -> str:
        """A webhook secret as it is stored."""
        return self._fernet.encrypt(secret.encode()).decode("ascii")

    def unseal(self, ciphertext: str) -> str:
        """The secret that was sealed."""
        return self._unseal(ciphertext)

    def _decrypted(self, ciphertext: str) -> str:
        return self._fernet.decrypt(ciphertext.encode("ascii")).decode()


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret)
