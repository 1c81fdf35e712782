"""Passes that hand operators to a library or to a kernel made for one kind of target.

Counterpart: ``tvm.relax.backend``.
"""

from relaxlab.relax.backend import cpu_generic, gpu_generic
from relaxlab.relax.backend.dispatch_sampling import DispatchSampling
from relaxlab.relax.backend.dispatch_sort_scan import DispatchSortScan

__all__ = ["DispatchSampling", "DispatchSortScan", "cpu_generic", "gpu_generic"]
