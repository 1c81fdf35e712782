"""What runs without the compiler: tensors, devices, the virtual machine and its builtins.

Counterpart: ``tvm.runtime``. Needs only NumPy and ``ml_dtypes``.

Examples
--------
>>> from relaxlab import runtime
>>> runtime.tensor([1.0, 2.0]).shape
ShapeTuple((2,))
"""

from relaxlab.runtime import sort
from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device, cpu, cuda, device
from relaxlab.runtime.dtype import DataType, DataTypeCode
from relaxlab.runtime.packed_func import (
    get_global_func,
    list_global_func_names,
    register_global_func,
    remove_global_func,
)
from relaxlab.runtime.params import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from relaxlab.runtime.safetensors import (
    load_safetensors,
    load_safetensors_from_file,
    safetensors_metadata,
    save_safetensors,
    save_safetensors_to_file,
)
from relaxlab.runtime.tensor import Tensor, empty, from_dlpack, tensor
from relaxlab.runtime.tensor_cache import dump_tensor_cache, load_tensor_cache
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.runtime.vm.executable import load_module

__all__ = [
    "Array",
    "DataType",
    "DataTypeCode",
    "Device",
    "ShapeTuple",
    "Tensor",
    "VirtualMachine",
    "cpu",
    "cuda",
    "device",
    "dump_tensor_cache",
    "empty",
    "from_dlpack",
    "get_global_func",
    "list_global_func_names",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "load_safetensors",
    "load_safetensors_from_file",
    "load_tensor_cache",
    "register_global_func",
    "remove_global_func",
    "safetensors_metadata",
    "save_param_dict",
    "save_param_dict_to_file",
    "save_safetensors",
    "save_safetensors_to_file",
    "sort",
    "tensor",
]
