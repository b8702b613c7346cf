"""Patches the functions of torch that take a device or a backend: "cuda" means "cpu", and nccl means gloo."""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, Callable

from . import cuda


def patch(torch: ModuleType) -> None:
    """Patches a freshly imported ``torch``."""
    devices = Devices(torch)
    cuda.patch(torch)
    _patch_tensors(torch, devices)
    _patch_modules(torch, devices)
    _patch_precision(torch)
    if torch.distributed.is_available():
        _patch_distributed(torch)


def _replace(owner: Any, name: str, **values: Callable[[Any], Any]) -> None:
    """Puts a function in the place of ``owner.name`` that passes the named arguments through ``values`` first."""
    original = getattr(owner, name)
    signature = inspect.signature(original)
    changed = {key: value for key, value in values.items() if key in signature.parameters}

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for key, value in changed.items():
            bound.arguments[key] = value(bound.arguments.get(key, signature.parameters[key].default))
        return original(*bound.args, **bound.kwargs)

    setattr(owner, name, replaced)


class Devices:
    """Finds CUDA devices among a call's arguments and replaces them by the CPU."""

    def __init__(self, torch: ModuleType) -> None:
        self._type = torch.device
        self.cpu = torch.device("cpu")

    def is_cuda(self, value: Any) -> bool:
        if isinstance(value, str):
            return value == "cuda" or value.startswith("cuda:")
        return isinstance(value, self._type) and value.type == "cuda"

    def convert(self, value: Any) -> Any:
        if not self.is_cuda(value):
            return value
        index = str(value).rpartition(":")[2]
        return self.by_index(int(index)) if index.isdecimal() else self.cpu

    def by_index(self, value: Any) -> Any:
        """The CPU, where ``value`` is the number of a device."""
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        cuda.check_index(value)
        return self.cpu

    def checked(self, value: Any, device: Any) -> Any:
        """``value``, where this host has ``device``."""
        self.convert(self.by_index(device))
        return value

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with CUDA devices in its arguments replaced by the CPU; a number in ``device=`` is one too."""

        @functools.wraps(function)
        def on_the_cpu(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = self.by_index(kwargs["device"])
            kwargs = {name: self.convert(value) for name, value in kwargs.items()}
            return function(*(self.convert(value) for value in args), **kwargs)

        return on_the_cpu


def _patch_tensors(torch: Any, devices: Devices) -> None:
    _device: Any = import_module("torch.utils._device")
    for constructor in _device._device_constructors():
        if hasattr(torch, constructor.__name__) and getattr(torch, constructor.__name__) is constructor:
            setattr(torch, constructor.__name__, devices.wrap(constructor))
    for name in ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"):
        setattr(torch.Tensor, name, devices.wrap(getattr(torch.Tensor, name)))
    torch.Tensor.to = _tensor_to(torch.Tensor.to, devices)
    torch.Tensor.cuda = lambda self, device=None, *args, **kwargs: devices.checked(self, device)
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.record_stream = lambda self, stream: None
    cast = torch.Tensor.type
    torch.Tensor.type = lambda self, dtype=None, *args, **kwargs: cast(
        self, dtype.replace("torch.cuda.", "torch.") if isinstance(dtype, str) else dtype, *args, **kwargs
    )
    enter_device = _device.DeviceContext.__init__
    _device.DeviceContext.__init__ = lambda self, device: enter_device(self, devices.convert(device))
    torch.set_default_device = devices.wrap(torch.set_default_device)
    torch.load = torch.serialization.load = _load(torch.load, devices)
    torch.Generator = _generator(torch.Generator, devices)


def _tensor_to(to: Callable[..., Any], devices: Devices) -> Callable[..., Any]:
    wrapped = devices.wrap(to)

    @functools.wraps(to)
    def to_the_cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = (*map(devices.by_index, args[:1]), *args[1:])
        return wrapped(self, *args, **kwargs)

    return to_the_cpu


def _load(load: Callable[..., Any], devices: Devices) -> Callable[..., Any]:
    """Loads everything onto the CPU, also what was saved on a GPU, unless ``map_location`` is the user's function."""

    @functools.wraps(load)
    def load_on_the_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, map_location if callable(map_location) else devices.cpu, *args, **kwargs)

    return load_on_the_cpu


def _generator(base: Any, devices: Devices) -> Any:
    class Generator(base):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, device=devices.convert(device))

    Generator.__module__ = "torch"
    Generator.__qualname__ = "Generator"
    return Generator


def _patch_modules(torch: Any, devices: Devices) -> None:
    module_to = torch.nn.Module.to

    @functools.wraps(module_to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = (*map(devices.by_index, args[:1]), *args[1:])
        return devices.wrap(module_to)(self, *args, **kwargs)

    torch.nn.Module.to = to
    _patch_data_parallel(torch)
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = classmethod(lambda cls, module, process_group=None: module)
    loader = torch.utils.data.DataLoader
    _replace(loader, "__init__", pin_memory=lambda value: False, pin_memory_device=lambda value: "")


def _patch_data_parallel(torch: Any) -> None:
    """One device does it all: as torch itself does where it finds no accelerator, a batch isn't split."""
    data_parallel: Any = import_module("torch.nn.parallel.data_parallel")

    def __init__(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        torch.nn.Module.__init__(self)
        self.module, self.device_ids, self.output_device, self.dim = module, [], None, dim

    def alone(module: Any, inputs: Any, *args: Any, module_kwargs: Any = None, **kwargs: Any) -> Any:
        return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))

    data_parallel.DataParallel.__init__ = __init__
    data_parallel.data_parallel = torch.nn.parallel.data_parallel = alone


def _patch_precision(torch: Any) -> None:
    """Switches CUDA's mixed precision off: float16 on the CPU is slow or missing."""
    autocast = torch.amp.autocast_mode.autocast
    enter = autocast.__init__

    def start(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if device_type == "cuda":
            device_type, dtype, enabled = "cpu", torch.bfloat16, False
        enter(self, device_type, dtype, enabled, cache_enabled)

    autocast.__init__ = start
    scaler = torch.amp.GradScaler
    make = scaler.__init__

    def make_scaler(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        make(self, "cpu", **{**kwargs, "enabled": False})

    scaler.__init__ = make_scaler


def _patch_distributed(torch: Any) -> None:
    """For a script that asks for nccl where there is only gloo."""
    device_mesh: Any = import_module("torch.distributed.device_mesh")
    distributed_c10d: Any = import_module("torch.distributed.distributed_c10d")

    def gloo(backend: Any) -> Any:
        return "gloo" if backend is None or "nccl" in str(backend).lower() else backend

    def default_gloo(backend: Any) -> Any:
        return backend if backend is None else gloo(backend)

    for name, backend in (("init_process_group", gloo), ("new_group", default_gloo)):
        _replace(distributed_c10d, name, backend=backend, device_id=lambda value: None)
    _replace(distributed_c10d, "barrier", device_ids=lambda value: None)
    distributed_c10d.all_reduce = _all_reduce(distributed_c10d)
    distributed_c10d.is_nccl_available = lambda: True
    _replace(device_mesh, "init_device_mesh", device_type=lambda value: "cpu" if value == "cuda" else value)
    for name in ("init_process_group", "new_group", "barrier", "all_reduce", "is_nccl_available"):
        for module in (torch.distributed, device_mesh):
            if hasattr(module, name):
                setattr(module, name, getattr(distributed_c10d, name))
    torch.distributed.init_device_mesh = device_mesh.init_device_mesh
    _patch_ddp(torch.nn.parallel.DistributedDataParallel, torch)
    fsdp = "torch.distributed.fsdp.fully_sharded_data_parallel"
    import_module("muster_after_import").after_import(fsdp, lambda module: _patch_fsdp(module, torch))


def _all_reduce(distributed: Any) -> Callable[..., Any]:
    """Adds averaging, which nccl has and gloo hasn't: the sum is divided here."""
    original = distributed.all_reduce

    @functools.wraps(original)
    def all_reduce(tensor: Any, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op != distributed.ReduceOp.AVG:
            return original(tensor, op, group, async_op)
        original(tensor, distributed.ReduceOp.SUM, group)
        tensor.div_(distributed.get_world_size(group))
        return SimpleNamespace(wait=lambda *args: True, is_completed=lambda: True) if async_op else None

    return all_reduce


def _patch_fsdp(module: Any, torch: Any) -> None:
    """For FullyShardedDataParallel, which refuses a CPU unless it is named."""
    _replace(module.FullyShardedDataParallel, "__init__", device_id=lambda value: torch.device("cpu"))


def _patch_ddp(ddp: Any, torch: Any) -> None:
    _replace(ddp, "__init__", device_ids=lambda value: None, output_device=lambda value: None)
    forward = ddp.forward

    @functools.wraps(forward)
    def forward_alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and torch.is_grad_enabled():
            return forward(self, *args, **kwargs)
        # rank 0 may evaluate alone under nccl, which doesn't wait for the others; gloo would wait
        due, self.require_forward_param_sync = self.require_forward_param_sync, False
        try:
            return forward(self, *args, **kwargs)
        finally:
            self.require_forward_param_sync = due

    ddp.forward = forward_alone
