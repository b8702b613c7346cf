from __future__ import annotations

import pytest

from musterpoint.rollcall.proof import prove, same, session_key


def test_a_proof_depends_on_everything() -> None:
    proofs = {
        prove("secret", b"hello", "nonce"),
        prove("other", b"hello", "nonce"),
        prove("secret", b"hallo", "nonce"),
        prove("secret", b"hello", "other"),
        session_key("secret", b"hello", "nonce").hex(),
        session_key("secret", b"hello", "other").hex(),
    }
    assert len(proofs) == 6
    assert same(prove("secret", b"hello", "nonce"), prove("secret", b"hello", "nonce"))


@pytest.mark.parametrize("other", ["b", "", "\ud800", "\u00e9", "a\0"])
def test_what_is_not_the_same(other: str) -> None:
    assert not same("a", other)


def test_any_secret_can_be_used() -> None:
    assert len({prove(secret, b"hello", "nonce") for secret in ("\udcff", "\u00e9", " ", "x" * 10_000)}) == 4
