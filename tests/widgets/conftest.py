"""A page that is not there: what a widget sends to it, and what it says."""

from typing import Any

import comm
import pytest

from relaxlab.widgets import VMStepper
from tests.trace.conftest import build, count_down, countdown, fact, memory  # noqa: F401


class Page(comm.base_comm.BaseComm):
    """The other end of a widget's connection: keeps messages, and answers like a browser."""

    def __init__(self, **kwargs: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(**kwargs)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self.sent.append({"type": msg_type, "data": data or {}, "buffers": buffers})

    def states(self) -> list[dict[str, Any]]:
        """Return the states that were sent since the widget was opened."""
        return [
            message["data"]["state"]
            for message in self.sent
            if message["data"].get("method") == "update"
        ]

    def says(self, **state: Any) -> None:
        """Change traits as a page does, all in one message."""
        self.handle_msg({"content": {"data": {"method": "update", "state": state}}, "buffers": []})


@pytest.fixture(autouse=True)
def _pages(monkeypatch):
    """Connect every new widget to a page of its own."""
    monkeypatch.setattr(comm, "create_comm", Page)
    manager = comm.base_comm.CommManager()
    monkeypatch.setattr(comm, "get_comm_manager", lambda: manager)


def page_of(widget: VMStepper) -> Page:
    page = widget.comm
    assert isinstance(page, Page)
    return page


def visit(stepper: VMStepper, *places: tuple[int, int]) -> None:
    """Look at places as a page does: (position, selected depth or -1)."""
    visits = stepper.visits
    page_of(stepper).says(
        position=places[-1][0],
        visits={
            "count": visits["count"] + len(places),
            "last": [*visits["last"], *map(list, places)],
        },
    )


@pytest.fixture
def stepper():
    """Return a view of a loop that counts 3 down to 0."""
    return VMStepper(build(("down", 1, ["n"], count_down)), "down", 3)
