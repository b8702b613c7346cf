"""Memory that tensors of a call to another rank have in common: views that are made again of the caller's tensors."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from .conftest import Modules

pytestmark = pytest.mark.torch


VIEWS: dict[str, Callable[[Any], Any]] = {
    "some rows": lambda x: x[1:],
    "every other row": lambda x: x[::2],
    "one of the last": lambda x: x.select(-1, x.shape[-1] - 1),
    "some of the last": lambda x: x[..., :2],
    "transposed": lambda x: x.transpose(0, -1),
    "one more dimension": lambda x: x.unsqueeze(1),
    "in one row": lambda x: x.reshape(-1),
    "repeated": lambda x: x.expand(2, *x.shape),
    "windows": lambda x: x.unfold(0, min(2, len(x)), 1),
}


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    names=st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=3),
    holes=st.booleans(),
    turned=st.booleans(),
)
def test_a_view_is_made_again_of_the_caller_s_tensor(
    modelparallel: Modules, torch: Any, sizes: list[int], names: list[str], holes: bool, turned: bool
) -> None:
    aliases = modelparallel("torch.aliases")
    mine = torch.arange(1000).as_strided(sizes, [100, 10, 3][: len(sizes)]) if holes else torch.rand(sizes)
    mine = mine.transpose(0, -1) if turned else mine
    theirs = mine.clone(memory_format=torch.contiguous_format if holes else torch.preserve_format)
    there, here = theirs, mine
    for name in names:
        there, here = (VIEWS[name](each) if each.dim() else each for each in (there, here))
    assume(there.numel())
    views = aliases.found([there], [theirs])
    is_view = here.untyped_storage()._cdata == mine.untyped_storage()._cdata
    if not views:
        assert not is_view and there.untyped_storage()._cdata != theirs.untyped_storage()._cdata
        return
    try:
        made = views[0].of(mine)
    except aliases.Unlike:
        return  # refused
    copied = holes and "in one row" in names and not is_view  # mine with holes; theirs had none, so it is a view there
    assert (made is not None) is is_view or copied
    if made is not None:
        assert torch.equal(made, here)
        assert copied or made.storage_offset() == here.storage_offset()  # a copy has a storage of its own


def test_what_is_no_view_of_an_argument(modelparallel: Modules, torch: Any) -> None:
    aliases = modelparallel("torch.aliases")
    x = torch.rand(4, 4, dtype=torch.complex128)
    for other in (x.clone(), x.conj(), x.real, x.imag, x.new_zeros(0), x.to_sparse()):
        assert aliases.found([other], [x]) == ()
    assert not aliases.found([x[:, :2], x[:, 2:]], [])  # neither is all of the memory
    assert [view and view.result for view in aliases.found([x[:, :2], x], [])] == [1, None]
    assert aliases.overlap(x[:, :2], x[:, 1:]) and aliases.overlap(x, x.T)
    assert not aliases.overlap(x[:, :2], x[:, 2:]) and not aliases.overlap(x, x.clone())
