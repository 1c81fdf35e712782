"""Operator calls of many families, for which TVM's kernels and values are recorded.

``golden/compiler/make_op_values.py`` records them; ``relax/op/test_values.py`` compares.
"""

import re

import numpy as np

F = "float32"


def spec(text):
    """Split ``x: float32[2, n=3]`` into name, dtype, dims and what symbolic ones are."""
    name, rest = text.split(": ")
    dtype, inside = re.fullmatch(r"(\w+)\[(.*)\]", rest).groups()
    dims, sizes = [], []
    for part in filter(None, (p.strip() for p in inside.split(","))):
        symbol, _, size = part.rpartition("=")
        dims.append(repr(symbol) if symbol else size)
        sizes.append(int(size))
    return name, dtype, dims, sizes


def source_of(params, call):
    """Return the program of one call."""
    inside = ", ".join(
        f'{name}: R.Tensor(({"".join(f"{d}, " for d in dims)}), "{dtype}")'
        for name, dtype, dims, _ in map(spec, params)
    )
    return (
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f"    def main({inside}):\n        gv = {call}\n        return gv\n"
    )


def inputs_of(params, call):
    """Return arrays; the same ones for the same call. Index-like ones are small and positive."""
    random = np.random.RandomState(len(call) * 7 + len(params))
    arrays = []
    for name, dtype, _, sizes in map(spec, params):
        if dtype == "bool":
            array = random.randint(0, 2, sizes).astype("bool")
        elif name.startswith(("i", "j")):  # indices
            array = random.randint(0, 2, sizes).astype(dtype)
        elif dtype.startswith(("int", "uint")):
            array = random.randint(0 if dtype[0] == "u" else -5, 6, sizes).astype(dtype)
        else:
            array = (random.rand(*sizes) * 4 - 2).astype(dtype) if sizes else np.array(1.5, dtype)
        arrays.append(array)
    return arrays


def cases():
    """Yield (params, call)."""
    x23, x34 = f"x: {F}[2, 3]", f"x: {F}[3, 4]"
    # einsum
    for subscripts, *shapes in (
        ("ij,jk->ik", "2, 3", "3, 4"),
        ("ij,kj->ik", "2, 3", "4, 3"),
        ("bij,bjk->bik", "2, 2, 3", "2, 3, 2"),
        ("ij->ji", "2, 3"),
        ("ij->", "2, 3"),
        ("ii->i", "3, 3"),
        ("ii->", "3, 3"),
        ("i,j->ij", "2", "3"),
        ("...ij,jk->...ik", "2, 2, 3", "3, 2"),
        ("ij,jk,kl->il", "2, 3", "3, 2", "2, 2"),
    ):
        names = "xyz"[: len(shapes)]
        params = [f"{n}: {F}[{s}]" for n, s in zip(names, shapes, strict=True)]
        yield params, f'R.einsum(({"".join(f"{n}, " for n in names)}), "{subscripts}")'
    yield [f"x: {F}[n=2, 3]", f"y: {F}[3, 4]"], 'R.einsum((x, y), "ij,jk->ik")'
    # quantization
    for dtype in ("int8", "uint8", "int16"):
        yield (
            [x34, f"y: {F}[4]", "z: int8[4]"],
            f'R.quantize(x, y, z, axis=-1, out_dtype="{dtype}")',
        )
    yield (
        ["x: int8[3, 4]", f"y: {F}[3]", "z: int8[3]"],
        'R.dequantize(x, y, z, axis=0, out_dtype="float32")',
    )
    yield (
        ["x: int8[3, 4]", f"y: {F}[4]", "z: int8[4]"],
        'R.dequantize(x, y, z, axis=1, out_dtype="float16")',
    )
    # order of elements
    yield [f"x: {F}[3, 4]", "i: int64[4]"], "R.reverse_sequence(x, i, seq_axis=0, batch_axis=1)"
    yield [f"x: {F}[3, 4, 2]", "i: int32[3]"], "R.reverse_sequence(x, i, seq_axis=1, batch_axis=0)"
    yield [f"x: {F}[4, 8]"], "R.layout_transform(x, index_map=lambda i, j: (j // 4, i, j % 4))"
    yield [f"x: {F}[4, 6]"], "R.layout_transform(x, index_map=lambda i, j: (j, i))"
    yield (
        [f"x: {F}[10]"],
        "R.layout_transform(x, index_map=lambda i: (i // 4, i % 4), pad_value=2.0)",
    )
    # convolution
    for options in (
        "strides=2, padding=1",
        "dilation=2, padding=2",
        "strides=(2, 1), padding=(1, 0, 2, 1)",
        'groups=2, data_layout="NCHW"',
        'out_dtype="float32"',
    ):
        w = "4, 2, 3, 3" if "groups" in options else "4, 4, 3, 3"
        yield [f"x: {F}[1, 4, 6, 6]", f"w: {F}[{w}]"], f"R.nn.conv2d(x, w, {options})"
    yield (
        [f"x: {F}[1, 5, 5, 3]", f"w: {F}[3, 3, 3, 2]"],
        'R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", padding=1)',
    )
    yield [f"x: {F}[n=2, 3, 5, 5]", f"w: {F}[2, 3, 3, 3]"], "R.nn.conv2d(x, w, padding=1)"
    yield [f"x: {F}[1, 2, 8]", f"w: {F}[3, 2, 3]"], "R.nn.conv1d(x, w, strides=2, padding=1)"
    yield [f"x: {F}[1, 4, 8]", f"w: {F}[4, 1, 3]"], "R.nn.conv1d(x, w, groups=4)"
    yield [f"x: {F}[1, 2, 4, 4, 4]", f"w: {F}[2, 2, 3, 3, 3]"], "R.nn.conv3d(x, w, padding=1)"
    yield [f"x: {F}[1, 2, 6]", f"w: {F}[2, 3, 3]"], "R.nn.conv1d_transpose(x, w, strides=2)"
    yield (
        [f"x: {F}[1, 2, 4, 4]", f"w: {F}[2, 3, 3, 3]"],
        "R.nn.conv2d_transpose(x, w, strides=2, padding=1, output_padding=1)",
    )
    yield [f"x: {F}[1, 2, 3, 3, 3]", f"w: {F}[2, 2, 2, 2, 2]"], "R.nn.conv3d_transpose(x, w)"
    yield ["x: float16[1, 2, 4, 4]", "w: float16[2, 2, 3, 3]"], "R.nn.conv2d(x, w, padding=1)"
    # pooling
    for kind in ("max", "avg"):
        for options in (
            "pool_size=2, strides=2",
            "pool_size=3, strides=2, padding=1",
            "pool_size=3, strides=2, padding=1, ceil_mode=True",
            "pool_size=2, strides=1, dilation=2",
        ):
            yield [f"x: {F}[1, 2, 6, 6]"], f"R.nn.{kind}_pool2d(x, {options})"
        yield [f"x: {F}[1, 2, 7]"], f"R.nn.{kind}_pool1d(x, pool_size=3, strides=2)"
        yield [f"x: {F}[1, 1, 4, 4, 4]"], f"R.nn.{kind}_pool3d(x, pool_size=2, strides=2)"
        yield [f"x: {F}[1, 4, 4, 2]"], f'R.nn.{kind}_pool2d(x, pool_size=2, layout="NHWC")'
    yield (
        [f"x: {F}[1, 2, 5, 5]"],
        "R.nn.avg_pool2d(x, pool_size=3, padding=1, count_include_pad=True)",
    )
    yield [f"x: {F}[n=2, 2, 6, 6]"], "R.nn.max_pool2d(x, pool_size=2, strides=2)"
    yield ["x: int8[1, 2, 4, 4]"], "R.nn.max_pool2d(x, pool_size=2)"
    yield [f"x: {F}[1, 2, 7, 5]"], "R.nn.adaptive_avg_pool2d(x, output_size=(3, 2))"
    yield [f"x: {F}[1, 2, 7]"], "R.nn.adaptive_avg_pool1d(x, output_size=3)"
    yield [f"x: {F}[1, 1, 4, 5, 3]"], "R.nn.adaptive_avg_pool3d(x, output_size=(2, 2, 2))"
    # normalization
    c, v = [f"g: {F}[4]", f"h: {F}[4]"], [f"m: {F}[4]", f"v: {F}[4]"]
    yield [f"x: {F}[2, 4, 3]", *c], "R.nn.layer_norm(x, g, h, axes=[1])"
    yield [f"x: {F}[n=2, 4]", *c], "R.nn.layer_norm(x, g, h, axes=[-1], epsilon=0.001)"
    yield (
        [f"x: {F}[2, 4, 3]", *c],
        "R.nn.group_norm(x, g, h, num_groups=2, channel_axis=1, axes=[2])",
    )
    yield [f"x: {F}[2, 4, 3]", *c], "R.nn.instance_norm(x, g, h, channel_axis=1, axes=[2])"
    yield [f"x: {F}[2, 3, 4]", c[0]], "R.nn.rms_norm(x, g, axes=[-1], epsilon=0.001)"
    yield [f"x: {F}[2, 4, 3]", *c, *v], "R.nn.batch_norm(x, g, h, m, R.abs(v), axis=1)[0]"
    # activations and losses
    for call in ("leakyrelu(x, 0.2)", "gelu(x)", "gelu_tanh(x)", "silu(x)", "selu(x)"):
        yield [x23], f"R.nn.{call}"
    yield [x23], "R.nn.softplus(x, beta=2.0, threshold=1.0)"
    yield [x23, f"y: {F}[3]"], "R.nn.prelu(x, y, axis=-1)"
    yield [x23], "R.nn.softmax(x, axis=0)"
    yield [f"x: {F}[2, 3, 2]"], "R.nn.log_softmax(x, axis=-2)"
    yield [x23, "y: int64[2]"], "R.nn.cross_entropy_with_logits(x, R.nn.softmax(x))"
    for reduction in ("mean", "sum", "none"):
        params = [f"x: {F}[2, 3]", "i: int64[2]", f"w: {F}[3]"]
        yield params, f'R.nn.nll_loss(x, i, w, reduction="{reduction}")'
        yield params[:2], f'R.nn.nll_loss(x, i, reduction="{reduction}", ignore_index=1)'
    yield [f"x: {F}[2, 3, 4]", "i: int64[2, 4]"], "R.nn.nll_loss(x, i)"
    # attention
    qkv = [f"{name}: {F}[2, 3, 2, 4]" for name in "qkv"]
    yield qkv, "R.nn.attention(q, k, v)"
    yield qkv, 'R.nn.attention(q, k, v, causal_mask="TopLeft")'
    yield qkv, 'R.nn.attention(q, k, v, causal_mask="BottomRight", scale=0.3)'
    yield [*qkv, f"b: {F}[2, 2, 3, 3]"], "R.nn.attention(q, k, v, b)"
    yield [*qkv, f"b: {F}[2, 1, 3, 3]"], "R.nn.attention(q, k, v, b)"
    # gathering and scattering
    yield [f"x: {F}[3, 4]", "i: int64[2, 4]"], "R.gather_elements(x, i, axis=0)"
    yield [f"x: {F}[3, 4]", "i: int32[3, 2]"], "R.gather_elements(x, i, axis=-1)"
    yield [f"x: {F}[3, 4]", "i: int64[5, 2]"], "R.gather_nd(x, i)"
    yield [f"x: {F}[3, 4]", "i: int64[3, 1]"], "R.gather_nd(x, i, batch_dims=1)"
    for mode in ("update", "add", "mul", "min", "max"):
        params = [f"x: {F}[3, 4]", "i: int64[3, 1]", f"u: {F}[3, 1]"]
        yield params, f'R.scatter_elements(x, i, u, axis=1, reduction="{mode}")'
        params = [f"x: {F}[3, 4]", "i: int64[1, 2]", f"u: {F}[1]"]
        yield params, f'R.scatter_nd(x, i, u, reduction="{mode}")'
    yield [f"x: {F}[3, 4]", "i: int64[2]", "j: int64[2]", f"u: {F}[2]"], "R.index_put(x, (i, j), u)"
    yield (
        [f"x: {F}[3, 4]", "i: int64[2]", "j: int64[2]", f"u: {F}[2]"],
        "R.index_put(x, (i, j), u, accumulate=True)",
    )
    yield [f"x: {F}[3, 4]", "i: int64[2]", "j: int64[2]"], "R.index_tensor(x, (i, j))"
    for mode in ("fast", "wrap", "clip"):
        yield [f"x: {F}[3, 4]", "i: int64[2, 2]"], f'R.take(x, i, axis=1, mode="{mode}")'
    yield ["i: int64[2, 3]"], "R.one_hot(i, R.prim_value(1.5), R.prim_value(0.5), 4, axis=1)"
    # unusual dtypes, no elements, negative axes
    for dtype in ("float16", "float64", "int8", "uint8", "int64"):
        yield [f"x: {dtype}[2, 3]", f"y: {dtype}[3]"], "R.add(x, y)"
        yield [f"x: {dtype}[2, 3]", f"y: {dtype}[2, 1]"], "R.maximum(x, y)"
        yield [f"x: {dtype}[2, 3]"], "R.sum(x, axis=-1)"
        yield [f"x: {dtype}[2, 3]"], "R.max(x, axis=[-2], keepdims=True)"
        yield [f"x: {dtype}[2, 3]"], "R.cumsum(x, axis=-1)"
        yield [f"x: {dtype}[2, 3]"], "R.argmax(x, axis=-1)"
        yield [f"x: {dtype}[2, 3]"], "R.sort(x, axis=-1, descending=True)"
        yield [f"x: {dtype}[2, 3]", f"y: {dtype}[3, 2]"], "R.matmul(x, y)"
    yield ["x: bool[2, 3]", "y: bool[2, 3]"], "R.logical_and(x, y)"
    yield ["x: bool[2, 3]"], "R.logical_not(x)"
    yield ["x: bool[2, 3]"], 'R.astype(x, "float32")'
    for call in (
        "R.add(x, x)", "R.sum(x, axis=0)", "R.exp(x)", "R.permute_dims(x)",
        "R.concat((x, x), axis=-1)",
        "R.reshape(x, (3, 0))", "R.squeeze(R.expand_dims(x, axis=-1), axis=-1)",
        "R.flip(x, axis=-1)",
        "R.matmul(x, R.permute_dims(x))", "R.nn.softmax(x, axis=0)",
    ):  # fmt: skip
        yield [f"x: {F}[0, 3]"], call
    for call in (
        "R.split(x, 2, axis=-1)", "R.split(x, [1, 3], axis=-1)", "R.stack((x, x), axis=-1)",
        "R.repeat(x, 2, axis=-1)", "R.tile(x, (2, 1))",
        "R.strided_slice(x, axes=[1], begin=[3], end=[0], strides=[-2])",
        "R.squeeze(R.expand_dims(x, axis=[-1, 0]), axis=[0, -1])",
        "R.topk(x, k=2, axis=-1)", "R.argsort(x, axis=0)", "R.variance(x, axis=-1)",
        "R.std(x, axis=-2)",
        "R.median(x, axis=-1)", "R.collapse_sum_to(x, (1, 4))", "R.nn.pad(x, (1, 0, 0, 2))",
    ):  # fmt: skip
        yield [f"x: {F}[n=3, 4]"] if "split" not in call else [x34], call
    # images
    image = [f"x: {F}[1, 2, 3, 5]"]
    places = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    for where in (*places, "tf_half_pixel_for_nn"):
        for how in ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", ""):
            if how and where not in ("half_pixel", "asymmetric"):
                continue
            call = f'R.image.resize2d(x, (7, 4), method="nearest_neighbor", rounding_method="{how}"'
            yield image, f'{call}, coordinate_transformation_mode="{where}")'
        for method in ("linear", "cubic"):
            yield (
                image,
                (
                    f'R.image.resize2d(x, (4, 3), method="{method}", '
                    f', coordinate_transformation_mode="{where}")'
                ),
            )
    for method in ("nearest_neighbor", "linear", "cubic"):
        yield (
            image,
            (
                f'R.image.resize2d(x, (3, 2), method="{method}", roi=(0.1, -0.2, 0.8, 0.9), '
                'coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.0)'
            ),
        )
    yield [f"x: {F}[1, 3, 5, 2]"], 'R.image.resize2d(x, (2, 7), layout="NHWC", method="linear")'
    yield image, 'R.image.resize2d(x, 4, method="cubic", cubic_exclude=1, cubic_alpha=-0.5)'
    yield ["x: uint8[1, 1, 2, 3]"], 'R.image.resize2d(x, (3, 4), method="linear")'
    yield [f"x: {F}[1, 1, h=2, w=3]"], 'R.image.resize2d(x, (3, 4), method="linear")'
    yield [f"x: {F}[1, 1, 2, 3, 2]"], 'R.image.resize3d(x, (3, 2, 4), method="linear")'
    yield [f"x: {F}[1, 1, 2, 3, 2]"], 'R.image.resize3d(x, (3, 2, 4), method="nearest_neighbor")'
    grid = [f"x: {F}[1, 2, 3, 4]", f"y: {F}[1, 2, 2, 3]"]
    for padding in ("zeros", "border", "reflection"):
        for corners in (False, True):
            for method in ("bilinear", "nearest", "bicubic"):
                if method == "bicubic" and padding == "reflection":
                    continue  # a kernel of 200 kB
                yield (
                    grid,
                    (
                        f'R.image.grid_sample(x, y, method="{method}", padding_mode="{padding}", '
                        f"align_corners={corners})"
                    ),
                )
    yield (
        [f"x: {F}[1, 1, 2, 3, 4]", f"y: {F}[1, 3, 2, 2, 2]"],
        'R.image.grid_sample(x, y, layout="NCDHW")',
    )
    yield [f"x: {F}[2, 2, 3]"], "R.image.affine_grid(x, (2, 3), align_corners=False)"
    yield [f"x: {F}[1, 3, 4]"], "R.image.affine_grid(x, (2, 3, 4))"
