"""Run by test_sources_keras.py with KERAS_BACKEND set: makes Keras models, reads them, stores what came out.

    python keras_cases.py FOLDER

writes NAME.npz for each case (weights as read, an input, Keras's own output) and cases.json (forms, messages).
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
from keras.layers import Activation, Add, Dense, Dropout

import gelu_fast as gf
from gelu_fast.export.sources import read_source

WIDTH = 6


def exact(units, **options):
    return Dense(units, "gelu", **options)


def tanh(x):
    return keras.activations.gelu(x, approximate=True)


def quick(x):
    return x * keras.ops.sigmoid(1.702 * x)


def sequential(*layers, width=WIDTH):
    return keras.Sequential([keras.Input((width,)), *layers])


def functional(*layers, width=WIDTH):
    x = start = keras.Input((None, width))
    for layer in layers:
        x = layer(x)
    return keras.Model(start, x)


class Subclassed(keras.Model):
    def __init__(self, residual):
        super().__init__()
        self.up, self.down, self.residual = exact(9), Dense(WIDTH), residual
        self(np.zeros((1, WIDTH)))

    def call(self, x):
        return self.down(self.up(x)) + (x if self.residual else 0)


def residual():
    start = keras.Input((WIDTH,))
    return keras.Model(start, Add()([start, Dense(WIDTH)(exact(9)(start))]))


def shared():
    """A layer that runs twice is listed once."""
    start, first = keras.Input((WIDTH,)), exact(WIDTH)
    return keras.Model(start, Dense(5)(first(first(start))))


def lora():
    model = sequential(exact(9), Dense(5))
    model.layers[0].enable_lora(2)
    model.layers[0].lora_kernel_b.assign(np.ones((2, 9)))
    return model


SERVED = {
    "article": lambda: sequential(exact(2048), Dense(512), width=512),
    "article, functional": lambda: functional(Dense(2048), Activation("gelu"), Dense(512), width=512),
    "sequential": lambda: sequential(exact(9), Dropout(0.5), Dense(5)),
    "functional": lambda: functional(Dense(9, use_bias=False), Activation("gelu"), Dense(5)),
    "square": lambda: sequential(exact(WIDTH), Dense(WIDTH)),
    "ops.gelu": lambda: functional(Dense(9), Activation(keras.ops.gelu), Dense(5, use_bias=False)),
    "activations.gelu": lambda: sequential(Dense(9, keras.activations.gelu), Dense(5)),
    "tanh": lambda: sequential(Dense(9, tanh), Dense(5)),
    "quick": lambda: sequential(Dense(9, quick), Dense(5)),
    "nested": lambda: sequential(keras.Sequential([exact(9), Dense(5)]), Dropout(0.1)),
    "stack": lambda: functional(exact(9), Dense(5), Dense(7), Activation("gelu"), Dense(4)),
    "subclassed": lambda: Subclassed(residual=False),
    "lora": lora,
}
REFUSED = {
    "relu": lambda: sequential(Dense(9, "relu"), Dense(5)),
    "no activation": lambda: sequential(Dense(9), Dense(5)),
    "one layer": lambda: sequential(exact(9)),
    "activation at the end": lambda: sequential(exact(9), Dense(5, "gelu")),
    "alternating": lambda: sequential(exact(9), Dense(5), Activation("gelu"), Dense(4)),
    "norm": lambda: sequential(exact(9), keras.layers.LayerNormalization(), Dense(4)),
    "unbuilt": lambda: keras.Sequential([exact(9), Dense(5)]),
    "residual": residual,
    "subclassed residual": lambda: Subclassed(residual=True),
    "shared": shared,
    "convolution": lambda: keras.Sequential([keras.Input((8, 3)), keras.layers.Conv1D(4, 2)]),
    "lone layer": lambda: exact(9),
    "two in a row": SERVED["stack"],
}


def plain(value):
    """An array, without the warning that keras.ops.convert_to_numpy gives on torch."""
    return value.detach().numpy() if hasattr(value, "detach") else value.numpy()


def served(make, folder, name):
    dtype = "float32" if name.startswith("article") else "float64"
    keras.config.set_floatx(dtype)  # of Input
    keras.config.set_dtype_policy(dtype)  # of layers
    keras.utils.set_random_seed(0)
    model = make()
    rng = np.random.default_rng(0)
    for weight in model.weights:  # Keras's biases are zeros at first
        if "bias" in weight.path:
            weight.assign(rng.standard_normal(weight.shape))
    stack = read_source(model)
    shape = (*[length or 3 for length in getattr(model, "input_shape", (3, 6))[:-1]], stack.in_features)
    x = rng.standard_normal(shape).astype(dtype)
    y = plain(model(x, training=False))
    found = {"formula": stack.approximate, "dtype": str(stack.dtype), "hidden": stack.hidden_features}
    kernels = [weight for weight in model.weights if weight.path.endswith("kernel") and weight.trainable]
    found["kernels_as_stored"] = name == "lora" or all(
        np.array_equal(plain(kernel.value), array)
        for kernel, array in zip(kernels, [a for n, a in stack.tensors.items() if n[-2] == "w"], strict=True)
    )
    if len(stack.blocks) == 1:
        ff = gf.FeedForward.from_keras(model)
        found |= {"ff": ff.approximate, "ff_difference": float(np.abs(ff(x) - y).max())}
    leaves = [layer for layer in model.layers if not isinstance(layer, Dropout)]
    found["as_list"] = all((a == b).all() for a, b in zip(
        read_source(leaves).tensors.values(), stack.tensors.values(), strict=True
    ))  # fmt: skip
    np.savez(folder / f"{name}.npz", x=x, y=y, **stack.tensors)
    return found


def message(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def dtypes():
    found = {}
    for dtype in ("float16", "bfloat16", "float32", "float64", "mixed_float16", "mixed_bfloat16"):
        model = sequential(exact(9, dtype=dtype), Dense(5, dtype=dtype))
        stack = read_source([model, sequential(exact(9, dtype=dtype), Dense(5, dtype=dtype), width=5)])
        found[dtype] = [str(stack.dtype), stack.approximate, str(gf.FeedForward.from_keras(model).dtype)]
    return found


def main(folder):
    found = {"backend": keras.backend.backend(), "served": {}, "refused": {}, "ff_refused": {}}
    for name, make in SERVED.items():
        found["served"][name] = served(make, folder, name)
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    for name, make in REFUSED.items():
        model = make()
        found["refused"][name] = message(lambda model=model: read_source(model))
        found["ff_refused"][name] = message(lambda model=model: gf.FeedForward.from_keras(model))
    model = sequential(exact(9), Dense(5))
    model.layers[1].kernel.assign(np.full((9, 5), np.nan))
    found["nan"] = message(lambda: read_source(model))
    found["nan_allowed"] = bool(np.isnan(read_source(model, allow_nonfinite=True).blocks[0].w2).all())
    found["dtypes"] = dtypes()
    (folder / "cases.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
