"""Proof of a shared secret without sending it, and what both ends make of it: HMAC-SHA256 over what was said.

The worker proves first, and the leader shows nothing before: the frames it seals with the session's key are its proof.
"""

from __future__ import annotations


def prove(secret: str, opening: bytes, nonce: str) -> str:
    """What a worker answers to the leader's ``nonce``; ``opening`` is its hello or resume as sent, with its own."""
    return _hmac(secret, b"worker", opening, nonce).hex()


def session_key(secret: str, opening: bytes, nonce: str) -> bytes:
    """The key of the one connection that began with ``opening`` and ``nonce``."""
    return _hmac(secret, b"session", opening, nonce)


def _hmac(secret: str, purpose: bytes, opening: bytes, nonce: str) -> bytes:
    import hashlib
    import hmac

    said = b"\0".join((purpose, nonce.encode(), hashlib.sha256(opening).digest()))
    return hmac.digest(secret.encode("utf-8", "surrogateescape"), said, "sha256")


def same(one: str, other: str) -> bool:
    """Compares two proofs or tokens without telling by time where they differ."""
    import hmac

    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
