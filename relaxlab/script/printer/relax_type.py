"""The types that only Relax has, as TVMScript.

Importing this module makes them known to the type printer.
"""

from relaxlab.ir.global_info import VDevice
from relaxlab.relax.shape import ShapeExpr
from relaxlab.relax.type import ShapeType, TensorType
from relaxlab.script.printer.ir import TYPES, dimensions, scalar, tuple_text
from relaxlab.script.printer.state import Printing

__all__ = ["vdevice_text"]


def _tensor(p: Printing, ty: TensorType) -> str:
    parts = []
    if isinstance(ty.shape, ShapeExpr):
        parts.append(tuple_text(dimensions(p, ty.shape.values)))
    elif ty.shape is not None:
        parts.append(scalar(p, ty.shape))
    if ty.dtype is not None:
        parts.append(f'dtype="{ty.dtype}"')
    if ty.shape is None and ty.ndim != -1:
        parts.append(f"ndim={ty.ndim}")
    if ty.vdevice is not None:
        parts.append(f'vdevice="{vdevice_text(p, ty.vdevice)}"')
    name = f"{p.mark('R')}.Tensor"
    return f"{name}({', '.join(parts)})" if parts else name


def vdevice_text(p: Printing, device: VDevice) -> str:
    """Return ``kind:index:scope``, the index counting the module's devices of that kind."""
    kind = device.target.kind.name
    index = 0
    for info in p.module.global_infos.get("vdevice", ()) if p.module else ():
        if info is device:
            break
        if isinstance(info, VDevice) and info.target.kind.name == kind:
            index += 1
    return f"{kind}:{index}:{device.memory_scope}"


def _shape(p: Printing, ty: ShapeType) -> str:
    name = f"{p.mark('R')}.Shape"
    if ty.values is None:
        return f"{name}(ndim={ty.ndim})"
    return f"{name}([{', '.join(dimensions(p, ty.values))}])"


TYPES[TensorType] = _tensor
TYPES[ShapeType] = _shape
