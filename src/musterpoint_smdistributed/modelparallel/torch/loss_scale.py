"""The factor that losses are multiplied by, so that float16 gradients neither vanish nor overflow.

Names and defaults of the arguments: AWS's documentation of ``smp.DistributedOptimizer``.
"""

from __future__ import annotations

from typing import Any, Mapping


class LossScale:
    """One factor; ``value`` is what it is now. Every rank of a replica makes the same decisions with its own copy.

    Args:
        fixed: the factor, where it isn't ``dynamic``.
        dynamic: it falls at each overflow, and rises after steps without one.
        arguments: of a dynamic one: ``init_scale``; ``scale_factor``, by which it falls and rises; ``scale_window``,
            after how many steps without an overflow it rises; ``min_scale``; ``delayed_shift``, at which overflow it
            falls, counted since it last rose; ``consecutive_hysteresis``, counted since the last step without one.

    Raises:
        ValueError: a factor that can't be.
        TypeError: an argument that there isn't.
    """

    def __init__(self, fixed: float | None, dynamic: bool, arguments: Mapping[str, Any]) -> None:
        self.dynamic = dynamic
        self._arguments = {
            "init_scale": 2.0**32,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "min_scale": 1.0,
            "delayed_shift": 1,
            "consecutive_hysteresis": False,
        }
        unknown = sorted(set(arguments) - set(self._arguments))
        if unknown:
            raise TypeError(
                f"smp.DistributedOptimizer: {unknown[0]!r} is none of dynamic_loss_args: {', '.join(self._arguments)}"
            )
        self._arguments.update(arguments)
        for name, least in (("init_scale", 0.0), ("scale_factor", 1.0), ("scale_window", 0), ("min_scale", 0.0)):
            if not self._arguments[name] > least:
                raise ValueError(f"dynamic_loss_args: {name}={self._arguments[name]!r}: expected more than {least:g}")
        fixed = 1.0 if fixed is None else fixed
        if not fixed > 0:
            raise ValueError(f"static_loss_scale={fixed!r}: expected more than 0")
        self.value = float(self._arguments["init_scale"] if dynamic else fixed)
        self._good = 0
        self._left = int(self._arguments["delayed_shift"])

    def update(self, overflow: bool) -> None:
        """After a step, or one that an overflow made impossible."""
        if not self.dynamic:
            return
        factor, shift = float(self._arguments["scale_factor"]), int(self._arguments["delayed_shift"])
        if overflow:
            self._good = 0
            if self._left > 1:
                self._left -= 1
            else:
                self.value = max(self.value / factor, float(self._arguments["min_scale"]))
            return
        self._good += 1
        if self._arguments["consecutive_hysteresis"]:
            self._left = shift
        if self._good % int(self._arguments["scale_window"]) == 0:
            self._left = shift
            self.value *= factor

    def state_dict(self) -> dict[str, Any]:
        return {"loss_scale": self.value, "good_steps": self._good, "shifts_left": self._left, "dynamic": self.dynamic}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Goes on where another one was; a fixed scale stays what the script says."""
        if self.dynamic and values["dynamic"]:
            self.value = float(values["loss_scale"])
            self._good, self._left = int(values["good_steps"]), int(values["shifts_left"])
