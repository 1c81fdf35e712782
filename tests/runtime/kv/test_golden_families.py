"""Every recorded trace replays with the kernels of every family."""

import pytest

from relaxlab.codegen.attention import is_available
from relaxlab.runtime.kv import exact
from relaxlab.runtime.kv.attention import FAMILIES
from tests.runtime.kv.golden_traces import Replay, names


@pytest.mark.parametrize("family", FAMILIES.names())
@pytest.mark.parametrize("name", names())
def test_trace_with_the_kernels_of_a_family(name, family):
    with exact():
        differences = Replay(name, family).run()
    assert not differences, "\n".join(map(str, differences))


def test_the_compiled_family_is_among_them():
    assert is_available() == ("llvm" in FAMILIES)
