"""Record a run, look at it forwards and backwards, step through it.

The road of a value: the machine tells an observer about events; a :class:`Recorder` keeps them;
its :class:`Timeline` folds them to the state at any step; a :class:`DebugSession` moves a cursor
over it; ``print(session)`` shows the state, and :func:`compact_trace` sends all of it to a view at
once. What the compiler did is recorded by a :class:`PassRecorder`. There is no TVM counterpart.

Examples
--------
>>> Recorder(limit=10)
Recorder(0 steps)
"""

from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.trace.breakpoints import Breakpoint, Watch
from relaxlab.trace.compact import compact_trace, line_text, state_at
from relaxlab.trace.condition import Expression, ExpressionError
from relaxlab.trace.debug_session import DebugSession, Edit, ReplayError
from relaxlab.trace.explain import explain_events, explain_instruction
from relaxlab.trace.graph_recorder import GraphRecorder
from relaxlab.trace.linked_program import LinkedProgram, link_program
from relaxlab.trace.phases import Phase, phases_of
from relaxlab.trace.pool_clock import PoolClock
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.trace.pool_text import render_pool
from relaxlab.trace.pool_timeline import PoolTimeline
from relaxlab.trace.recorder import Recorder
from relaxlab.trace.text import render
from relaxlab.trace.timeline import Frame, StorageUse, Timeline, Write

__all__ = [
    "Breakpoint",
    "DebugSession",
    "Edit",
    "Expression",
    "ExpressionError",
    "Frame",
    "GraphRecorder",
    "LinkedProgram",
    "PassRecorder",
    "Phase",
    "PoolClock",
    "PoolRecorder",
    "PoolTimeline",
    "Recorder",
    "ReplayError",
    "StorageUse",
    "Timeline",
    "Watch",
    "Write",
    "compact_trace",
    "explain_events",
    "explain_instruction",
    "line_text",
    "link_program",
    "phases_of",
    "render",
    "render_pool",
    "state_at",
]
