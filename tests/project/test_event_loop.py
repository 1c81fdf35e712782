"""The tests leave this thread as they found it."""

import asyncio

import pytest


def test_no_event_loop_is_left_running():
    # The browser tests run before this one, and Playwright runs a loop in their thread.
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
