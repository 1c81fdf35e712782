"""Random commands on a session: the cursor goes where a simple model says, and shows that state."""

import contextlib
import io

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relaxlab.trace import DebugSession, Recorder
from tests.strategies import programs


class SessionMachine(RuleBasedStateMachine):
    """The model knows the whole run in advance: depth and pc of every step, and every state."""

    @initialize(program=programs())
    def begin(self, program):
        recorder = Recorder(None)
        machine = program.machine()
        machine.observer = recorder
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            machine["main"](*program.arguments())
        whole = recorder.timeline
        self.end = whole.end
        self.pcs = [whole.instruction(step).pc for step in range(whole.end)]
        self.depths = [whole.instruction(step).depth for step in range(whole.end)] + [-1]
        self.states = [whole.state(position) for position in range(whole.end + 1)]
        self.session = DebugSession(program.machine(), "main", *program.arguments())
        self.at = 0
        self.stops = {}

    def is_stop(self, position):
        return position < self.end and self.pcs[position] in self.stops.values()

    def forward(self, arrived):
        position = self.at
        while position < self.end:
            position += 1
            if arrived(position) or self.is_stop(position):
                break
        return position

    def backward(self, arrived):
        position = self.at
        while position > 0:
            position -= 1
            if arrived(position) or self.is_stop(position):
                break
        return position

    @rule(times=st.integers(1, 3))
    def step(self, times):
        self.session.step(times)
        self.at = min(self.at + times, self.end)

    @rule(times=st.integers(1, 3))
    def back(self, times):
        self.session.back(times)
        self.at = max(self.at - times, 0)

    @rule()
    def over(self):
        self.session.over()
        depth = self.depths[self.at]
        self.at = self.forward(lambda position: self.depths[position] <= depth)

    @rule()
    def out(self):
        self.session.out()
        depth = self.depths[self.at]
        self.at = self.forward(lambda position: self.depths[position] < depth)

    @rule()
    def back_over(self):
        self.session.back_over()
        depth = max(self.depths[self.at], 0)
        self.at = self.backward(lambda position: self.depths[position] <= depth)

    @rule()
    def back_out(self):
        self.session.back_out()
        depth = self.depths[self.at]
        self.at = self.backward(lambda position: self.depths[position] < depth)

    @rule()
    def go_on(self):
        self.session.continue_()
        self.at = self.forward(lambda position: False)

    @rule()
    def reverse(self):
        self.session.reverse_continue()
        self.at = self.backward(lambda position: False)

    @rule(share=st.floats(0, 1))
    def goto(self, share):
        self.at = round(share * self.end)
        self.session.goto(self.at)

    @rule(share=st.floats(0, 1, exclude_max=True))
    def set_breakpoint(self, share):
        pc = self.pcs[int(share * self.end)]
        self.stops[self.session.break_at(pc=pc).number] = pc

    @precondition(lambda self: self.stops)
    @rule(data=st.data())
    def remove_breakpoint(self, data):
        number = data.draw(st.sampled_from(sorted(self.stops)))
        del self.stops[number]
        self.session.remove(number)

    @rule()
    def restart(self):
        self.session.restart()
        self.at = 0

    @invariant()
    def shows_the_state_of_the_model(self):
        if not hasattr(self, "session"):
            return
        assert self.session.position == self.at
        assert self.session.state == self.states[self.at]
        assert self.session.at_end == (self.at == self.end)
        for number, pc in self.stops.items():
            point = self.session.breakpoints[number]
            assert point.count(self.at) == self.pcs[: self.at + 1].count(pc)
        assert str(self.session)


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
