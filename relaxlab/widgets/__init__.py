"""Views of a run, for notebooks and web pages.

Examples
--------
>>> from relaxlab.widgets import VMStepper
"""

from relaxlab.widgets.executable_view import ExecutableView
from relaxlab.widgets.graph_replay import GraphReplay
from relaxlab.widgets.memory_plan import MemoryPlan
from relaxlab.widgets.page_pool import PagePool
from relaxlab.widgets.paged_stepper import PagedStepper
from relaxlab.widgets.pass_explorer import PassExplorer
from relaxlab.widgets.profile import Profile
from relaxlab.widgets.vm_stepper import VMStepper

__all__ = [
    "ExecutableView",
    "GraphReplay",
    "MemoryPlan",
    "PagePool",
    "PagedStepper",
    "PassExplorer",
    "Profile",
    "VMStepper",
]
