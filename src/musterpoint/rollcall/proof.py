"""Proof of a shared secret without sending it, and the key both ends make of it: HMAC-SHA256 over what was said.

The worker proves first, and the leader shows nothing before: the frames it seals with the session's key are its proof.
"""

from __future__ import annotations


def prove(secret: str, opening: bytes, nonce: str) -> tuple[str, bytes]:
    """What a worker answers to the leader's ``nonce``, and the key of the one connection that began so.

    ``opening`` is the worker's hello or resume as it was sent, with a nonce of its own. They are the two halves of one
    HMAC: who hears the proof knows nothing of the key.
    """
    import hashlib
    import hmac

    said = b"\0".join((b"muster", nonce.encode(), hashlib.sha256(opening).digest()))
    mac = hmac.digest(secret.encode("utf-8", "surrogateescape"), said, "sha256")
    return mac[:16].hex(), mac[16:]


def same(one: str, other: str) -> bool:
    """Compares two proofs or tokens without telling by time where they differ."""
    import hmac

    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
