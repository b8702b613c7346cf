"""Plans to be shown, made as the launchers' tests make them."""

from ...core.launch.conftest import plan

__all__ = ["plan"]
