"""Saves and loads with ``torch.distributed.checkpoint``: files that plain torch reads at any number of ranks."""

from . import state_dict_loader, state_dict_saver

__all__ = ["state_dict_loader", "state_dict_saver"]
