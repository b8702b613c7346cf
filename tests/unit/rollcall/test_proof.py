from __future__ import annotations

from musterpoint.rollcall.proof import prove, same


def test_a_proof_depends_on_everything() -> None:
    proofs = {
        prove("secret", "leader", b"hello", "nonce"),
        prove("secret", "worker", b"hello", "nonce"),
        prove("other", "leader", b"hello", "nonce"),
        prove("secret", "leader", b"hallo", "nonce"),
        prove("secret", "leader", b"hello", "other"),
    }
    assert len(proofs) == 5
    assert same(prove("secret", "leader", b"hello", "nonce"), prove("secret", "leader", b"hello", "nonce"))
    assert not same("a", "b")
