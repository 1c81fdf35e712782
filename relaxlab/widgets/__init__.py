"""Views of a run, for notebooks and web pages.

Examples
--------
>>> from relaxlab.widgets import VMStepper
"""

from relaxlab.widgets.executable_view import ExecutableView
from relaxlab.widgets.page_pool import PagePool
from relaxlab.widgets.vm_stepper import VMStepper

__all__ = ["ExecutableView", "PagePool", "VMStepper"]
