"""Several blocks in a row, the names of tensors in files, and how weights lie."""

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from blocks import NAMES, arrays, rows, run64, torch_block
from safetensors.torch import save_file
from torch import nn

import gelu_fast as gf
from gelu_fast.export.blocks import Stack
from gelu_fast.export.sources import read_source

A, B = arrays(4, 6, 5, seed=1), arrays(5, 7, 3, seed=2)


def named(block, first="fc1", second="fc2", prefix="", *, transposed=True):
    """As a state_dict has it."""
    w1, b1, w2, b2 = block
    turn = np.transpose if transposed else np.asarray
    names = {f"{first}.weight": turn(w1), f"{first}.bias": b1, f"{second}.weight": turn(w2), f"{second}.bias": b2}
    return {prefix + name: np.ascontiguousarray(a) for name, a in names.items() if a is not None}


def plain(block, prefix=""):
    return {prefix + name: a for name, a in zip(NAMES, block, strict=True)}


def assert_stack(stack, *blocks):
    assert isinstance(stack, Stack)
    assert len(stack.blocks) == len(blocks)
    for got, want in zip(stack.blocks, blocks, strict=True):
        for name, array in zip(NAMES, want, strict=True):
            np.testing.assert_array_equal(getattr(got, name), array)


def torch_sequential(block):
    module = nn.Sequential(nn.Linear(*block[0].shape), nn.GELU(), nn.Linear(*block[2].shape))
    module.load_state_dict({k: torch.from_numpy(v) for k, v in named(block, "0", "2").items()})
    return module


KINDS = {
    "tuples": [A, B],
    "lists": [list(A), list(B)],
    "mappings": [plain(A), named(B)],
    "stacks": [read_source(A), read_source(B).blocks[0]],
    "one stack": read_source([A, B]),
    "numbers in a file": {**plain(A, "layers.0."), **plain(B, "layers.1.")},
    "nested lists": [[a.tolist() for a in block] for block in (A, B)],
    "models": [gf.FeedForward(*A), torch_sequential(B)],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_two_blocks(kind):
    stack = read_source(KINDS[kind])
    assert_stack(stack, A, B)
    assert (stack.in_features, stack.hidden_features, stack.out_features) == (4, (6, 7), 3)
    assert list(stack.tensors) == [f"layers.{k}.{name}" for k in (0, 1) for name in NAMES]
    assert read_source(stack) is stack
    assert_stack(read_source(stack.tensors), A, B)  # its own names are among those that are read


def test_four_items_are_a_block_or_four_blocks():
    square = arrays(4, 4)
    assert_stack(read_source(square), square)
    assert_stack(read_source([square] * 4), *[square] * 4)
    assert_stack(read_source([plain(square)] * 4), *[square] * 4)
    assert_stack(read_source(tuple(a.tolist() for a in square)), [np.float64(np.asarray(a.tolist())) for a in square])
    assert_stack(read_source((square[0], None, square[2], None)), (square[0], None, square[2], None))
    assert len(read_source([(square[0], None, square[2], None)]).blocks) == 1
    assert len(read_source([torch_block(4, 6) for _ in range(4)]).blocks) == 4


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ([A, A], ValueError, r"block 0 gives 5 features \(\[0\]\.w2\), block 1 expects 4 \(\[1\]\.w1\)"),
        ([], TypeError, "source: expected .* got list of length 0"),
        ([A, 3], TypeError, "source: expected .* got list of length 2"),
        ([A, "text"], ValueError, "weights come from .npz or .safetensors, got 'text'"),
        ([A, B[:3]], TypeError, r"source\[1\]: expected .* got tuple of length 3"),
        ([A, (B[0], B[1], B[2][:, :2], B[3])], ValueError, r"\[1\]\.b2: expected shape \(2,\), got \(3,\)"),
        ([gf.FeedForward(*A, "tanh"), B], ValueError, "all state one formula.* block 0 'tanh', block 1 None"),
        ([gf.FeedForward(*A), gf.FeedForward(*B, "quick")], ValueError, "block 0 'none', block 1 'quick'"),
    ],
)
def test_sequences_that_are_no_stack(source, kind, message):
    with pytest.raises(kind, match=message):
        read_source(source)


def test_mixed_dtypes_of_a_stack_are_named():
    """Case 11."""
    stack = read_source([A, (B[0], B[1].astype(np.float64), B[2], B[3])])
    with pytest.raises(TypeError, match=r"source: mixed dtypes: .*\[0\]\.w1 is float32, .*\[1\]\.b1 is float64, .*"):
        _ = stack.dtype
    assert stack.astype("float64").dtype == np.float64
    assert_stack(stack.astype("float32"), A, B)


def test_nonfinite_weights():
    """Case 14."""
    wrong = {**plain(A, "layers.0."), **plain(B, "layers.1.")}
    wrong["layers.1.b1"] = B[1].copy()
    wrong["layers.1.b1"][2] = -np.inf
    with pytest.raises(ValueError, match=r"layers\.1\.b1: expected finite weights, got -inf at \(2,\); 1 of 7 aren't"):
        read_source(wrong)
    stack = read_source(wrong, allow_nonfinite=True)
    assert stack.blocks[1].b1[2] == -np.inf
    assert stack.astype("float16").blocks[1].b1[2] == -np.inf  # was infinite before, so nothing overflowed
    wrong["layers.0.w1"] = np.full((4, 6), 1e6, np.float32)
    with pytest.raises(ValueError, match=r"layers\.0\.w1 as float16: expected finite weights, got inf"):
        read_source(wrong, allow_nonfinite=True).astype("float16")


PREFIXES = {
    "gpt2": ("c_fc", "c_proj", "h.{}.mlp.", False),
    "bert": ("intermediate.dense", "output.dense", "encoder.layer.{}.", True),
    "vit": ("fc1", "fc2", "blocks.{}.mlp.", True),
}


@pytest.mark.parametrize("kind", PREFIXES)
@pytest.mark.parametrize("numbers", [(0, 1), (9, 10)], ids=["from 0", "beyond 9"])
def test_names_of_other_libraries(tmp_path, kind, numbers):
    first, second, prefix, transposed = PREFIXES[kind]
    tensors = {}
    for number, block in zip(reversed(numbers), (B, A), strict=True):
        tensors |= named(block, first, second, prefix.format(number), transposed=transposed)
    assert_stack(read_source(tensors), A, B)
    np.savez(tmp_path / "w.npz", **tensors)
    assert_stack(read_source(tmp_path / "w.npz"), A, B)
    single = named(A, first, second, "model.mlp.", transposed=transposed)
    assert_stack(read_source(single), A)


def test_layer_norm_of_a_bert_output_is_outside():
    tensors = named(A, "intermediate.dense", "output.dense")
    assert_stack(read_source({**tensors, "output.LayerNorm.weight": A[3], "output.LayerNorm.bias": A[3]}), A)
    with pytest.raises(ValueError, match=r"attention\.output\.dense\.weight: not part of a block of intermediate\.den"):
        read_source({**tensors, "attention.output.dense.weight": A[2]})


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({**plain(A, "layers.0."), **plain(B, "layers.2.")}, "one after the other; got 'layers.0.', 'layers.2.'"),
        ({**plain(A, "encoder."), **plain(B, "decoder.")}, "prefixes differ in one number.*'decoder.', 'encoder.'"),
        ({**plain(A, "a.0.b.0."), **plain(B, "a.1.b.1.")}, "prefixes differ in one number"),
        ({**plain(A, "layers.0."), "layers.1.w1": B[0]}, r"layers\.1\.w1: not part of a block of w1, b1, w2, b2"),
        ({**plain(A), "head.weight": B[0]}, r"head\.weight: not part of a block"),
        ({**plain(A), 3: B[0]}, "expected names of tensors as keys, got 3"),
        ({"xw1": A[0], "xw2": A[2]}, "expected tensors w1, b1, w2, b2.*got 'xw1', 'xw2'"),
    ],
)  # fmt: skip
def test_names_that_make_no_stack(tensors, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read_source(tensors)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False], ids=["nanoGPT", "Hugging Face"])
def test_orientation_of_c_fc_is_told_by_shapes(transposed, bias):
    """The same names mean nn.Linear in one repository and Conv1D in another."""
    block = arrays(4, 6, 4 if bias else 5, bias=bias)
    assert_stack(read_source(named(block, "c_fc", "c_proj", transposed=transposed)), block)


@pytest.mark.parametrize("block", [arrays(4, 4), arrays(4, 6, 4, bias=False)], ids=["square", "no bias"])
def test_ambiguous_orientation_is_refused(block):
    with pytest.raises(ValueError, match=re.escape("c_fc.weight (4, ") + ".* fit both as .in, out.* and as .out, in"):
        read_source(named(block, "c_fc", "c_proj", transposed=False))


def test_square_weights_go_by_their_names():
    """Case 10: hidden = in = out, so only values show a transpose."""
    block = arrays(5, 5)
    x = rows(5)
    want = run64(x, [block], "none")
    for source in (block, plain(block), named(block), named(block, "intermediate.dense", "output.dense")):
        np.testing.assert_array_equal(run64(x, read_source(source).blocks, "none"), want)
    wrong = run64(x, [(block[0].T, *block[1:])], "none")
    assert np.abs(wrong - want).max() > 0.1
    module = torch_block(5, 5).double()
    with torch.no_grad():
        np.testing.assert_allclose(
            run64(x, read_source(module).blocks, "none"), module(torch.from_numpy(x)).numpy(), rtol=1e-12, atol=1e-13
        )


def test_bfloat16_of_torch_and_safetensors(tmp_path):
    module = torch_block(4, 6).to(torch.bfloat16)
    fc1, fc2 = module.fc1, module.fc2
    want = [a.detach().float().numpy() for a in (fc1.weight.T, fc1.bias, fc2.weight.T, fc2.bias)]
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    for source in (module, module.state_dict(), tmp_path / "w.safetensors"):
        stack = read_source(source)
        assert stack.dtype == ml_dtypes.bfloat16
        assert_stack(stack.astype("float32"), want)
    np.savez(tmp_path / "w.npz", **plain([a.astype(ml_dtypes.bfloat16) for a in want]))
    with pytest.raises(TypeError, match=r"w1: expected weights of .* got dtype \|V2; .npz can't hold bfloat16"):
        read_source(tmp_path / "w.npz")


def test_bfloat16_without_ml_dtypes(tmp_path):
    """Read as float32, which holds every value."""
    module = torch_block(4, 6).to(torch.bfloat16)
    module.fc2.float()
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    torch.save(module.state_dict(), tmp_path / "w.pt")
    code = (
        "import sys\nsys.modules['ml_dtypes'] = None\nimport torch, numpy as np\n"
        "from gelu_fast.export.sources import read_source\n"
        "state = torch.load('w.pt')\n"
        "for source in (state, 'w.safetensors'):\n"
        "    for name, array in read_source(source).tensors.items():\n"
        "        want = state[{'w': 'fc%s.weight', 'b': 'fc%s.bias'}[name[0]] % name[1]].float().numpy().T\n"
        "        assert array.dtype == np.float32 and (array == want).all(), name\n"
        "print('the same')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout == "the same\n", done.stderr


def test_other_floats_are_refused():
    for dtype in (np.longdouble, ml_dtypes.float8_e4m3fn):
        with pytest.raises(TypeError, match="w1: expected weights of float16, bfloat16, float32, float64, got dtype"):
            read_source((A[0].astype(dtype), *A[1:]))
