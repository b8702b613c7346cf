from __future__ import annotations

import pytest

from musterpoint.channel.secret import prove, same


def test_a_proof_depends_on_everything() -> None:
    proofs = {
        prove("secret", b"hello", "nonce"),
        prove("other", b"hello", "nonce"),
        prove("secret", b"hallo", "nonce"),
        prove("secret", b"hello", "other"),
    }
    assert len({proof for proof, _key in proofs}) == len({key for _proof, key in proofs}) == 4
    assert not {proof for proof, _key in proofs} & {key.hex() for _proof, key in proofs}
    assert same(prove("secret", b"hello", "nonce")[0], prove("secret", b"hello", "nonce")[0])


@pytest.mark.parametrize("other", ["b", "", "\ud800", "\u00e9", "a\0"])
def test_what_is_not_the_same(other: str) -> None:
    assert not same("a", other)


def test_any_secret_can_be_used() -> None:
    assert len({prove(secret, b"hello", "nonce") for secret in ("\udcff", "\u00e9", " ", "x" * 10_000)}) == 4
