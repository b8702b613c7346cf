from __future__ import annotations

import pytest

from musterpoint.core.channel.secret import check, prove


def test_a_proof_depends_on_everything() -> None:
    proofs = {
        prove("secret", b"hello", "nonce"),
        prove("other", b"hello", "nonce"),
        prove("secret", b"hallo", "nonce"),
        prove("secret", b"hello", "other"),
    }
    assert len({proof for proof, _key in proofs}) == len({key for _proof, key in proofs}) == 4
    assert not {proof for proof, _key in proofs} & {key.hex() for _proof, key in proofs}


@pytest.mark.parametrize("wrong", ["b", "", "0" * 32])
def test_only_the_right_proof_gives_the_key(wrong: str) -> None:
    proof, key = prove("secret", b"hello", "nonce")
    assert check("secret", b"hello", "nonce", proof) == key
    assert check("secret", b"hello", "nonce", wrong) is None


def test_any_secret_can_be_used() -> None:
    assert len({prove(secret, b"hello", "nonce") for secret in ("\udcff", "\u00e9", " ", "x" * 10_000)}) == 4
