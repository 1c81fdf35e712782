"""Instruments: what they are told, in which order, and those that come with the compiler."""

import re

import pytest

import relaxlab as tvm
from relaxlab.ir import IRModule, PassContext, PassInfo, Sequential, module_pass
from relaxlab.ir.instrument import (
    DumpIR,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)


@module_pass(opt_level=0, name="Same")
def same(mod, ctx):
    return mod


@module_pass(opt_level=0, name="bad")
def bad(mod, ctx):
    raise ValueError("no")


class Log:
    """Three instruments a, b, c with one log; b fails somewhere."""

    def __init__(self, fails=""):
        self.lines = lines = []

        def make(tag, fails):
            @pass_instrument
            class Noting:
                def note(self, what):
                    lines.append(tag + what)
                    if fails == what:
                        raise ValueError(what)

                def enter_pass_ctx(self):
                    self.note("enter")

                def exit_pass_ctx(self):
                    self.note("exit")

                def should_run(self, mod, info):
                    lines.append(tag + "should")
                    return fails != "should"

                def run_before_pass(self, mod, info):
                    self.note("before")

                def run_after_pass(self, mod, info):
                    self.note("after")

            return Noting()

        self.instruments = [make("a", ""), make("b", fails), make("c", "")]


@pytest.mark.parametrize(
    ("fails", "wanted"),
    [
        ("", ["abc before", "abc after"]),
        ("should", []),
        ("before", ["ab before"]),
        ("after", ["abc before", "ab after"]),
    ],
)
def test_order_is_tvms(fails, wanted):
    log = Log(fails)
    context = PassContext(instruments=log.instruments)
    if fails in ("before", "after"):
        with pytest.raises(ValueError, match=fails), context:
            same(IRModule())
    else:
        with context:
            same(IRModule())
    steps = [step.split() for step in ["abc enter", "abc should", *wanted, "abc exit"]]
    expected = [tag + what for tags, what in steps for tag in tags]
    assert log.lines == expected


def test_a_pass_that_raises_is_told_and_has_no_after():
    told = []

    @pass_instrument
    class Watching:
        def run_after_pass(self, mod, info):
            told.append(("after", info.name))

        def pass_failed(self, mod, info, error):
            told.append((info.name, str(error)))

    with pytest.raises(ValueError, match="no"), PassContext(instruments=[Watching()]):
        Sequential([same, bad])(IRModule())
    assert told == [("after", "Same"), ("bad", "no"), ("sequential", "no")]


def test_what_returns_no_module_is_told_too():
    told = []

    @pass_instrument
    class Watching:
        def pass_failed(self, mod, info, error):
            told.append(str(error))

    @module_pass(opt_level=0, name="Nothing")
    def nothing(mod, ctx):
        return None

    with pytest.raises(TypeError), PassContext(instruments=[Watching()]):
        nothing(IRModule())
    assert told == ["pass Nothing returned NoneType, not an IRModule"]


def test_instruments_can_be_replaced_inside_the_context():
    log, other = Log(), Log()
    with PassContext(instruments=log.instruments) as context:
        context.override_instruments(other.instruments)
        same(IRModule())
    assert log.lines[3:] == ["aexit", "bexit", "cexit"]
    assert other.lines[:4] == ["aenter", "benter", "center", "ashould"]
    assert other.lines[-1] == "cexit"


def test_times_have_tvms_form():
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([same, Sequential([same], name="inner")])(IRModule())
        same(IRModule())
        text = timing.render()
    number = r"\d+us \[\d+us\] \(\d+\.\d\d%; \d+\.\d\d%\)\n"
    assert re.fullmatch(
        f"sequential: {number}\tSame: {number}\tinner: {number}\t\tSame: {number}Same: {number}",
        text,
    )
    assert timing.render() == ""  # as in TVM, leaving the context forgets


def test_times_survive_a_pass_that_raises():
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        with pytest.raises(ValueError, match="no"):
            Sequential([bad])(IRModule())
        same(IRModule())
        assert [line.split(":")[0] for line in timing.render().splitlines()] == [
            "sequential",
            "\tbad",
            "Same",
        ]


def test_printing(capsys):
    with PassContext(instruments=[PrintBeforeAll(), PrintAfterAll()]):
        same(IRModule())
    info = 'transform.PassInfo(opt_level=0, name="Same", required=(), traceable=False)'
    before, after = capsys.readouterr().out.split("After Running Pass: ")
    assert before.startswith(f"Before Running Pass: {info}\n# from tvm.script import ir as I\n")
    assert after.startswith(f"{info}\n")
    with PassContext(instruments=[PassPrintingInstrument(["Same"], ["sequential"])]):
        Sequential([same])(IRModule())
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Print IR")]
    assert heads == ["Print IR before: Same", "Print IR after: sequential"]


def test_dump(tmp_path):
    folder = tmp_path / "ir"
    folder.mkdir()
    (folder / "old.py").write_text("")
    with PassContext(instruments=[DumpIR(folder, refresh=True)]):
        Sequential([same], name="a/b")(IRModule())
    assert sorted(path.name for path in folder.iterdir()) == ["000_Same.py", "001_a_b.py"]
    assert "@I.ir_module" in (folder / "000_Same.py").read_text()


def test_info_and_options_are_shown_as_in_tvm():
    assert str(PassInfo("f", 2, ("a",))) == (
        "transform.PassInfo(opt_level=2, name=\"f\", required=('a',), traceable=False)"
    )
    options = PassContext.list_configs()
    assert options["relax.FuseOps.max_depth"] == {"type": "int"}
    assert options["relax.backend.use_cuda_graph"] == {"type": "bool"}


def test_door():
    assert tvm.instrument.pass_instrument is pass_instrument
    assert issubclass(tvm.instrument.DumpIR, tvm.instrument.PassInstrument)
