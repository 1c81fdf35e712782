"""Sequences of passes: order, levels, names."""

from relaxlab.ir import IRModule, PassContext, Sequential, module_pass


def _noting(log, name, level=0):
    @module_pass(opt_level=level, name=name)
    def note(mod, ctx):
        log.append(name)
        return mod

    return note


def test_members_run_in_order_and_those_above_the_level_are_skipped():
    log = []
    members = [_noting(log, "a"), _noting(log, "b", 3), _noting(log, "c", 2)]
    Sequential(members)(IRModule())
    assert log == ["a", "c"]
    log.clear()
    with PassContext(opt_level=3, disabled_pass=["a"]):
        Sequential(members)(IRModule())
    assert log == ["b", "c"]


def test_a_sequence_has_a_name_and_a_level_of_its_own():
    inner = Sequential([], opt_level=3, name="inner")
    assert (inner.info.name, inner.info.opt_level) == ("inner", 3)
    log = []
    Sequential([Sequential([_noting(log, "x")], 3, "inner")])(IRModule())
    assert log == []
