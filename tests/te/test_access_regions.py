from relaxlab.ir import IntImm, Range, TensorLoad, Var, prim_ops, structural_equal
from relaxlab.te.access_regions import access_regions
from relaxlab.tirx import Bind, BufferStore, decl_buffer, seq

I64 = "int64"
i, j = Var("i", I64), Var("j", I64)
a = decl_buffer((IntImm(I64, 8), IntImm(I64, 8)), name="a")
b = decl_buffer((IntImm(I64, 8),), name="b")
ids = decl_buffer((IntImm(I64, 8),), I64, name="ids")


def show(regions):
    return [
        (region.buffer.name, [(str(r.min), str(r.extent)) for r in region.region])
        for region in regions
    ]


def names(regions):
    return [region.buffer.name for region in regions]


def test_an_outer_read_comes_before_the_reads_in_its_indices():
    store = BufferStore(b, TensorLoad(a, (TensorLoad(ids, (i,)), j)), (i,))
    reads, writes = access_regions(store)
    assert names(reads) == ["a", "ids"]
    assert names(writes) == ["b"]


def test_two_reads_of_one_buffer_are_one_box():
    value = TensorLoad(b, (i,)) + TensorLoad(b, (i - 1,))
    reads, _ = access_regions(BufferStore(a, value, (i, j)))
    (region,) = reads
    (extent,) = region.region
    assert structural_equal(extent, Range(i - 1, IntImm(I64, 2)))


def test_two_reads_of_one_place_are_a_point():
    value = TensorLoad(b, (i + 1,)) * TensorLoad(b, (i + 1,))
    reads, _ = access_regions(BufferStore(a, value, (i, j)))
    assert structural_equal(reads[0].region[0], Range(i + 1, IntImm(I64, 1)))


def test_a_reducing_block_does_not_read_what_it_writes():
    init = BufferStore(b, prim_ops.const(0.0), (i,))
    update = BufferStore(b, TensorLoad(b, (i,)) + TensorLoad(a, (i, j)), (i,))
    assert names(access_regions(update, init)[0]) == ["a"]
    assert names(access_regions(update)[0]) == ["b", "a"]


def test_a_choice_in_an_index_bounds_it_by_what_surrounds_it():
    n = Var("n", I64)
    chosen = prim_ops.if_then_else(prim_ops.less(n, 1), n, n - 1)
    index = prim_ops.min(prim_ops.max(chosen, 0), 7) + j
    reads, _ = access_regions(BufferStore(a, TensorLoad(b, (index,)), (i, j)))
    assert show(reads) == [("b", [("j", "T.int64(8)")])]


def test_an_index_that_only_a_call_knows_covers_the_dimension():
    index = prim_ops.if_then_else(prim_ops.less(i, j), i, j)
    reads, _ = access_regions(BufferStore(a, TensorLoad(b, (index,)), (i, j)))
    assert show(reads) == [("b", [("T.int64(0)", "T.int64(8)")])]


def test_bound_values_count_as_reads():
    v = Var("v", "float32")
    body = seq([Bind(v, TensorLoad(a, (i, j))), BufferStore(b, v, (i,))])
    reads, writes = access_regions(body)
    assert (names(reads), names(writes)) == (["a"], ["b"])
