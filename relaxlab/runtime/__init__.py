"""What runs without the compiler: tensors, devices, the virtual machine and its builtins.

Counterpart: ``tvm.runtime``. Needs only NumPy and ``ml_dtypes``.

Examples
--------
>>> from relaxlab import runtime
>>> runtime.tensor([1.0, 2.0]).shape
ShapeTuple((2,))
"""

from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import Device, cpu, cuda, device
from relaxlab.runtime.dtype import DataType, DataTypeCode
from relaxlab.runtime.tensor import Tensor, empty, from_dlpack, tensor

__all__ = [
    "Array",
    "DataType",
    "DataTypeCode",
    "Device",
    "ShapeTuple",
    "Tensor",
    "cpu",
    "cuda",
    "device",
    "empty",
    "from_dlpack",
    "tensor",
]
