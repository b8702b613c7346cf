"""Proof of a shared secret, both ways, without sending it: HMAC-SHA256 over the hello and the leader's nonce."""

from __future__ import annotations


def prove(secret: str, role: str, hello: bytes, nonce: str) -> str:
    """What ``role`` (``leader`` or ``worker``) answers to a hello's bytes and the leader's ``nonce``."""
    import hashlib
    import hmac

    said = b"\0".join((role.encode(), nonce.encode(), hashlib.sha256(hello).digest()))
    return hmac.new(secret.encode(), said, "sha256").hexdigest()


def same(one: str, other: str) -> bool:
    """Compares two proofs or tokens without telling by time where they differ."""
    import hmac

    return hmac.compare_digest(one.encode(), other.encode())
