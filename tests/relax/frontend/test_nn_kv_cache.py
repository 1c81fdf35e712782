"""What a model says to a cache: TVM's text, and the numbers of attention."""

from pathlib import Path

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import Var
from relaxlab.relax.frontend import nn
from relaxlab.relax.frontend.nn.llm import (
    AttnKind,
    PagedKVCache,
    RNNState,
    RopeMode,
    TIRPagedKVCache,
)
from relaxlab.runtime.kv.rope import Rope
from tests.runtime.kv.dense_attention import causal, dense

GOLDEN = Path(__file__).parents[2] / "golden" / "kv" / "nn_methods.txt"
B, S = Var("b", "int64"), Var("s", "int64")


def tensor(name, *sizes, dtype="float16"):
    return Var(name, relax.TensorType([*sizes], dtype))


def emitted(builder, name, inputs, body):
    cache = Var("cache", relax.AnyType())
    params = [*inputs, cache]
    with builder.function(name, params, attrs={"num_input": len(params)}):
        with builder.dataflow():
            given = [nn.Tensor(_expr=x) for x in inputs]
            result = body(*given, PagedKVCache(_expr=cache, _name="cache"))
            parts = result if isinstance(result, tuple) else (result,)
            values = [part._expr for part in parts]
            output = builder.emit_output(values if len(values) > 1 else values[0])
        builder.emit_func_output(output)


def test_every_method_writes_tvms_text():
    builder = relax.BlockBuilder()
    q, k, v = tensor("q", B, S, 4, 8), tensor("k", B, S, 2, 8), tensor("v", B, S, 2, 8)
    emitted(
        builder,
        "fused",
        [tensor("qkv", B, S, 8, 8)],
        lambda qkv, c: c.attention_with_fused_qkv(1, qkv, 4, 0.25),
    )
    emitted(builder, "selfa", [q, k, v], lambda q, k, v, c: c.self_attention(1, q, k, v, 0.25))
    emitted(builder, "cross", [q], lambda q, c: c.cross_attention(0, q, 8, 0.25))
    emitted(
        builder,
        "shared",
        [q, k, v],
        lambda q, k, v, c: c.attention_with_shared_kv(0, q, k, v, 0.5),
    )
    emitted(
        builder,
        "mla",
        [tensor("kv", B, S, 1, 12), tensor("q", B, S, 4, 12)],
        lambda kv, q, c: c.append_mla_kv(0, kv).cross_attention(0, q, 8, 0.25),
    )
    partial = [
        tensor("o1", B, S, 4, 8),
        tensor("l1", B, S, 4, dtype="float32"),
        tensor("o2", B, S, 4, 8),
        tensor("l2", B, S, 4, dtype="float32"),
    ]
    emitted(
        builder,
        "merge",
        partial,
        lambda o1, l1, o2, l2, c: c.merge_attn_output_inplace(o1, l1, o2, l2),
    )
    emitted(
        builder,
        "pos",
        [tensor("x", B, S, dtype="int32")],
        lambda x, c: c.get_query_positions(x.shape[0] * x.shape[1]),
    )
    text = builder.get().script(show_meta=False)
    assert text.rstrip() == GOLDEN.read_text(encoding="utf-8").rstrip()


SIZES = ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support")


def emit_create(builder, kind="mha", layers=1, heads=(4, 2), dims=(8, 8), **given):
    symbols = [Var(name, "int64") for name in SIZES]
    params = [
        Var(f"{name}_1", relax.ShapeType([symbol]))
        for name, symbol in zip(SIZES, symbols, strict=True)
    ]
    options = {"target": "llvm", "dtype": "float32", "rope_mode": RopeMode.NORMAL} | given
    with builder.function("create", params):
        with builder.dataflow():
            cache = TIRPagedKVCache(
                attn_kind=kind,
                max_batch_size=symbols[0],
                max_total_seq_len=symbols[1],
                prefill_chunk_size=symbols[2],
                page_size=symbols[3],
                support_sliding_window=symbols[4],
                layer_partition=relax.ShapeExpr([0, layers]),
                num_hidden_layers=layers,
                num_attention_heads=heads[0],
                num_key_value_heads=heads[1],
                qk_head_dim=dims[0],
                v_head_dim=dims[1],
                mla_original_qk_head_dim=0,
                mla_original_v_head_dim=0,
                rope_scale=1,
                rope_theta=500,
                rope_scaling={},
                rope_ext_factors=relax.prim_value(0),
                rotary_dim=dims[0],
                enable_disaggregation=False,
                **options,
            )
            output = builder.emit_output(cache._expr)
        builder.emit_func_output(output)


def created(vm, page_size=16, support=0):
    return vm["create"](*[runtime.ShapeTuple([n]) for n in (4, 64, 64, page_size, support)])


@pytest.mark.parametrize("target", ["llvm", "numpy"])
def test_a_module_that_makes_its_cache_and_attends(target):
    builder = relax.BlockBuilder()
    emit_create(builder, target=target)
    emitted(
        builder,
        "forward",
        [tensor("qkv", B, S, 8, 8, dtype="float32")],
        lambda qkv, c: c.attention_with_fused_qkv(0, qkv, 4, 0.25),
    )
    executable = relax.build(builder.get(), target)
    loaded = relax.VMExecutable.load_from_bytes(executable.save_to_bytes())
    assert loaded.stats()
    vm = relax.VirtualMachine(executable, runtime.cpu())
    cache = created(vm)
    rng, rope = np.random.default_rng(0), Rope(8, 500.0)
    cache.add_sequence(0)
    keys, values = np.zeros((0, 2, 8)), np.zeros((0, 2, 8))
    for tokens in (5, 1, 1, 3):
        qkv = rng.standard_normal((1, tokens, 8, 8)).astype("float32")
        cache.begin_forward([0], [tokens])
        out = vm["forward"](qkv, cache).numpy()
        cache.end_forward()
        positions = len(keys) + np.arange(tokens)
        q, k = rope.rotate(qkv[0, :, :4], positions), rope.rotate(qkv[0, :, 4:6], positions)
        keys, values = np.concatenate([keys, k]), np.concatenate([values, qkv[0, :, 6:]])
        want, _ = dense(q, keys, values, causal(tokens, len(keys)), 0.25)
        np.testing.assert_allclose(out[0], want, atol=1e-5)


def test_a_latent_cache_and_its_methods():
    builder = relax.BlockBuilder()
    emit_create(builder, "mla", heads=(2, 1), dims=(12, 8), rope_mode=RopeMode.NONE)
    emitted(
        builder,
        "forward",
        [tensor("kv", B, S, 1, 12, dtype="float32"), tensor("q", B, S, 2, 12, dtype="float32")],
        lambda kv, q, c: c.append_mla_kv(0, kv).cross_attention(0, q, 8, 0.3),
    )
    vm = relax.VirtualMachine(relax.build(builder.get()), runtime.cpu())
    cache, rng = created(vm), np.random.default_rng(0)
    cache.add_sequence(0)
    cache.begin_forward([0], [1])
    kv, q = (rng.standard_normal((1, 1, n, 12)).astype("float32") for n in (1, 2))
    out, lse = vm["forward"](kv, q, cache)
    np.testing.assert_allclose(out.numpy()[0, 0], np.repeat(kv[0, 0, :, :8], 2, 0), atol=1e-6)
    assert lse.shape == (1, 1, 2)


def test_layers_with_a_window_of_their_own():
    builder = relax.BlockBuilder()
    emit_create(builder, ["mha", "mha_sliding"], layers=2, layer_sliding_window_size=5)
    vm = relax.VirtualMachine(relax.build(builder.get()), runtime.cpu())
    assert created(vm).config.attn_kinds == (AttnKind.MHA, AttnKind.MHA_SLIDING)


def test_refusals():
    with pytest.raises(ValueError, match="one of mha, mla, mha_sliding for each of 1 layers"):
        emit_create(relax.BlockBuilder(), "mqa")
    with pytest.raises(ValueError, match="cannot be mixed"):
        emit_create(relax.BlockBuilder(), ["mla", "mha"], layers=2)
    with pytest.raises(InternalError, match="no kernels for target 'cuda'"):
        emit_create(relax.BlockBuilder(), target="cuda")
    with pytest.raises(InternalError, match="no function is being built"):
        nn.Tensor(_expr=tensor("x", 2, 3)).reshape(6)
    with pytest.raises(TypeError, match="expected a tensor, got"):
        nn.Tensor(_expr=Var("x", relax.AnyType()))


def test_a_recurrent_model():
    builder = relax.BlockBuilder()
    count = Var("n", "int64")
    size = Var("n_1", relax.ShapeType([count]))
    init = tensor("init", 2, dtype="float32")
    with builder.function("create", [size, init]):
        with builder.dataflow():
            made = RNNState.create(1, count, 3, [nn.Tensor(_expr=init)])
            output = builder.emit_output(made._expr)
        builder.emit_func_output(output)
    x, state = tensor("x", B, 2, dtype="float32"), Var("state", relax.AnyType())
    with builder.function("forward", [x, state]):
        with builder.dataflow():
            seen = RNNState(_expr=state, _name="state")
            old = seen.get(0, 0, (B, 2), "float32")
            both = builder.emit(relax.op.add(old._expr, x))
            after = seen.set(0, 0, nn.Tensor(_expr=both))
            output = builder.emit_output([old._expr, after._expr])
        builder.emit_func_output(output)
    vm = relax.VirtualMachine(relax.build(builder.get()), runtime.cpu())
    made = vm["create"](runtime.ShapeTuple([4]), np.array([1.0, 2.0], "float32"))
    made.add_sequence(3)
    for step in range(3):
        made.begin_forward([3], [1])
        old, same = vm["forward"](np.ones((1, 2), "float32"), made)
        made.end_forward()
        assert same is made
        assert old.numpy().tolist() == [[1.0 + step, 2.0 + step]]
