"""Models that nobody here wrote: what torch.onnx, Keras, onnx's own tests and onnxruntime's optimiser make.

    KERAS_BACKEND=torch python models_of_others.py FOLDER

writes the Keras ones: a backend is for a whole process. `benchmarks/rewrites.py` makes the same models, larger.
"""

import contextlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

QUICK = 1.702
KERAS = {"none": ("none",), "tanh": ("tanh",), "quick": ("quick",), "silu": (), "both": ("none", "tanh")}
# What Hugging Face calls its activations, and which formula each is; "gelu_10" clips the exact form.
HF = {
    "gelu": "none", "gelu_python": "none", "gelu_10": "none", "gelu_new": "tanh", "gelu_fast": "tanh",
    "gelu_accurate": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_python_tanh": "tanh", "quick_gelu": "quick",
}  # fmt: skip
LEGACY, DYNAMO = (14, 16, 17), (18, 20, 21, 23)


@dataclass(frozen=True)
class Other:
    """A model and what it holds.

    Attributes
    ----------
    name, exporter : str
    formulas : tuple of str
        Of its GELUs, in order.
    make : callable
        Gives the ModelProto.
    """

    name: str
    exporter: str
    formulas: tuple[str, ...]
    make: Callable[[], onnx.ModelProto]

    def __str__(self) -> str:
        return f"{self.name}, {self.exporter}"


@contextlib.contextmanager
def quiet():
    """The exporters warn, log and print by the page."""
    sink = io.StringIO()
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def by_torch(module, args, opset, *, dynamo, dynamic=True, **options):
    """What torch.onnx.export makes of a module in eval mode; the first axis of every input dynamic."""
    import torch

    module = module.eval()
    names = [f"x{i}" for i in range(len(args))]
    with quiet():
        if dynamo:
            shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in args) if dynamic else None
            options |= {"dynamic_shapes": shapes, "input_names": names, "verbose": False}
            made = torch.onnx.export(module, args, dynamo=True, opset_version=opset, **options)
            return made.model_proto
        file = io.BytesIO()
        axes = {name: {0: "n"} for name in names} if dynamic else None
        torch.onnx.export(
            module, args, file, dynamo=False, opset_version=opset, dynamic_axes=axes, input_names=names, **options
        )
    return onnx.load_from_string(file.getvalue())


def activations():
    """Name: (module, formulas)."""
    from torch import nn
    from transformers.activations import ACT2FN

    class Quick(nn.Module):
        def forward(self, x):
            return x * (QUICK * x).sigmoid()

    found = {"nn.GELU()": (nn.GELU(), ("none",)), "nn.GELU('tanh')": (nn.GELU("tanh"), ("tanh",)),
             "x*sigmoid(1.702x)": (Quick(), ("quick",))}  # fmt: skip
    return found | {f"HF {name}": (ACT2FN[name], (formula,)) for name, formula in HF.items()}


def block(activation, width=(8, 16), dtype=None):
    """Linear, activation, Linear, and an input."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(*width), activation, nn.Linear(*width[::-1])).to(dtype or torch.float32)
    return made, (torch.randn(3, width[0]).to(dtype or torch.float32),)


def _exporters():
    return [(f"{'dynamo' if dynamo else 'legacy'} {opset}", dynamo, opset)
            for dynamo, opsets in ((False, LEGACY), (True, DYNAMO)) for opset in opsets]  # fmt: skip


def blocks(width=(8, 16)):
    """Linear/GELU/Linear in every activation, type and exporter."""
    import torch

    out = []
    for label, dynamo, opset in _exporters():
        for name, (module, formulas) in activations().items():
            for dtype in (torch.float32, torch.float16):

                def make(module=module, dtype=dtype, dynamo=dynamo, opset=opset):
                    return by_torch(*block(module, width, dtype), opset, dynamo=dynamo)

                suffix = "" if dtype is torch.float32 else " float16"
                out.append(Other(f"{name}{suffix}", label, formulas, make))
    return out


def hugging_face(width=32, layers=2, vocabulary=99, tokens=7):
    """Name: (module, arguments, formulas), with random weights; eager attention, and one tensor out."""
    import torch
    from torch import nn
    from transformers import (
        BertConfig,
        BertModel,
        CLIPTextConfig,
        CLIPTextModel,
        CLIPVisionConfig,
        CLIPVisionModel,
        GPT2Config,
        GPT2Model,
        ViTConfig,
        ViTModel,
    )  # fmt: skip

    class First(nn.Module):
        def __init__(self, inner, **options):
            super().__init__()
            self.inner, self.options = inner, options

        def forward(self, *args):
            names = ("input_ids", "attention_mask", "position_ids")
            named = dict(zip(names, args, strict=False)) if args[0].dtype == torch.int64 else {"pixel_values": args[0]}
            return self.inner(**named, **self.options, return_dict=False)[0]

    torch.manual_seed(0)
    common = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 4 * width,
        "attn_implementation": "eager",
    }  # fmt: skip
    image = {"image_size": 16, "patch_size": 8}
    ids = torch.randint(0, vocabulary, (1, tokens))
    mask, places = torch.ones_like(ids), torch.arange(tokens)[None]
    pixels = torch.randn(1, 3, 16, 16)
    gpt2 = GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=2, use_cache=False, attn_implementation="eager"
    )
    return {
        "BERT": (First(BertModel(BertConfig(vocab_size=vocabulary, **common))), (ids, mask), ("none",) * layers),
        "GPT-2": (First(GPT2Model(gpt2), use_cache=False), (ids, mask, places), ("tanh",) * layers),
        "ViT": (First(ViTModel(ViTConfig(**image, **common))), (pixels,), ("none",) * layers),
        "CLIP text": (First(CLIPTextModel(CLIPTextConfig(vocab_size=vocabulary, max_position_embeddings=max(16, tokens),
                                                         **common))), (ids, mask), ("quick",) * layers),
        "CLIP vision": (First(CLIPVisionModel(CLIPVisionConfig(**image, **common))), (pixels,), ("quick",) * layers),
    }  # fmt: skip


def transformers(**size):
    """Hugging Face's models by every exporter."""
    out = []
    for name, (module, args, formulas) in hugging_face(**size).items():
        for label, dynamo, opset in _exporters():

            def make(module=module, args=args, dynamo=dynamo, opset=opset):
                return by_torch(module, args, opset, dynamo=dynamo, dynamic=False)

            out.append(Other(f"HF {name}", label, formulas, make))
    return out


def keras(backend, width=(8, 16)):
    """What `model.export(format="onnx")` writes, made by a process of its own."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), folder, *map(str, width)]
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise RuntimeError(f"keras on {backend}: {done.stderr[-2000:]}")
        made = {name: onnx.load(Path(folder) / f"{name}.onnx") for name in KERAS}
    return [Other(name, f"keras, {backend}", KERAS[name], lambda m=model: m) for name, model in made.items()]


def write_keras(folder, width):
    import keras
    from keras.layers import Dense

    functions = {
        "none": "gelu", "tanh": lambda x: keras.activations.gelu(x, approximate=True),
        "quick": lambda x: x * keras.ops.sigmoid(QUICK * x), "silu": "silu",
    }  # fmt: skip
    for name in KERAS:
        layers = [Dense(width[1], functions["none" if name == "both" else name], bias_initializer="random_normal"),
                  Dense(width[0], functions["tanh"] if name == "both" else None)]  # fmt: skip
        model = keras.Sequential([keras.Input((width[0],)), *layers])
        model(np.zeros((1, width[0]), np.float32))
        model.export(Path(folder) / f"{name}.onnx", format="onnx", verbose=False)


def onnx_cases():
    """onnx's own tests of single operators, with their stored inputs and outputs: name, model, data_sets."""
    from onnx.backend.test.loader import load_model_tests

    with quiet():
        return load_model_tests(kind="node")


def as_functions(opset=17):
    """Legacy torch.onnx with modules as model-local functions: one that is a GELU, and one that holds it."""
    from torch import nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.act = nn.Linear(8, 8), nn.GELU()

        def forward(self, x):
            return self.up(self.act(x))

    def make(kind):
        module = nn.GELU() if kind is nn.GELU else Inner()
        kind = nn.GELU if kind is nn.GELU else Inner
        return by_torch(*block_of(module), opset, dynamo=False, export_modules_as_functions={kind})

    def block_of(module):
        import torch

        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8), module, nn.Linear(8, 8)), (torch.randn(3, 8),)

    return [Other("the GELU a function", f"legacy {opset}, functions", ("none",), lambda: make(nn.GELU)),
            Other("a layer a function", f"legacy {opset}, functions", ("none",), lambda: make(None))]  # fmt: skip


def optimised(model, level="ORT_ENABLE_EXTENDED"):
    """What onnxruntime saves of a model after its optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "m.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def through_onnxruntime(others):
    """The same models after onnxruntime's optimiser."""
    return [Other(other.name, f"{other.exporter}, onnxruntime", other.formulas, lambda o=other: optimised(o.make()))
            for other in others]  # fmt: skip


if __name__ == "__main__":
    write_keras(sys.argv[1], tuple(map(int, sys.argv[2:4])) or (8, 16))
