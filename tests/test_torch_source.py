"""PyTorch modules people write themselves: which blocks are in them, and which aren't."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from blocks import rows, run64, torch_block
from torch import nn
from torch.nn import functional as F  # noqa: N812

import gelu_fast as gf
import gelu_fast.torch as gt
from gelu_fast.export.sources import read_source


def assert_computes(module, stack, form):
    """The weights that were read give, in float64, what the module gives in double precision."""
    assert stack.approximate == form
    x = rows(stack.in_features)
    with torch.no_grad():
        want = module.double().eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run64(x, stack.blocks, form), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_module_keeps_its_formula(approximate):
    module = torch_block(4, 6, approximate)
    assert_computes(module, read_source(module), approximate)
    sequence = nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate=approximate), nn.Linear(6, 4, bias=False))
    stack = read_source(sequence)
    assert stack.blocks[0].b2 is None
    assert_computes(sequence, stack, approximate)


def test_module_keeps_its_mode_and_ignores_dropout():
    module = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 4))
    module[0].eval()  # dropout stays in training mode: run so, the module would look like another function
    modes = [m.training for m in module.modules()]
    assert read_source(module).hidden_features == (6,)
    assert [m.training for m in module.modules()] == modes


class Parts(nn.Module):
    def __init__(self, width=4):
        super().__init__()  # square, and registered in another order than they run
        self.fc2, self.act, self.fc1 = nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Functional(nn.Module):
    """No activation among its children."""

    def __init__(self):
        super().__init__()
        self.up, self.drop, self.down = nn.Linear(4, 150), nn.Dropout(0.5), nn.Linear(150, 3)

    def forward(self, x):
        return self.down(self.drop(F.gelu(self.up(x), approximate="tanh")))


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.net, self.drop = inner, nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.net(x))


class Loop(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.layers = nn.ModuleList(blocks)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def flat(*widths):
    """Linear, GELU, Linear, Linear, GELU, Linear, …"""
    layers = []
    for k, pair in enumerate(itertools.pairwise(widths)):
        layers += [nn.Linear(*pair), nn.GELU()][: 2 - k % 2]
    return nn.Sequential(*layers)


MODULES = {
    "registered in another order": (Parts, "none", (4,)),
    "F.gelu in forward": (Functional, "tanh", (150,)),
    "hidden narrower than the grid": (lambda: Wrapper(Functional()), "tanh", (150,)),
    "wrapper": (lambda: Wrapper(nn.Sequential(nn.Linear(4, 6), nn.GELU("tanh"), nn.Linear(6, 2))), "tanh", (6,)),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.GELU()), nn.Linear(6, 2)), "none", (6,)),
    "flat stack": (lambda: flat(4, 6, 5, 7, 3), "none", (6, 7)),
    "blocks": (lambda: nn.Sequential(Parts(), nn.Dropout(), torch_block(4, 6), flat(4, 9, 2)), "none", (4, 6, 9)),
    "loop over a list": (lambda: Loop(torch_block(4, 6), Parts(), torch_block(4, 7)), "none", (6, 4, 7)),
    "ours": (lambda: gt.FeedForwardBlock(4, 6, 3, approximate="quick"), "quick", (6,)),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODULES)
def test_modules(kind):
    make, form, hidden = MODULES[kind]
    module = make()
    stack = read_source(module)
    assert stack.hidden_features == hidden
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert_computes(module, stack, form)


def test_module_list_is_a_stack():
    last = nn.Sequential(nn.Linear(4, 5), nn.GELU("tanh"), nn.Linear(5, 3))
    blocks = nn.ModuleList([torch_block(4, 6, "tanh"), last])
    stack = read_source(blocks)
    assert stack.hidden_features == (6, 5)
    assert_computes(nn.Sequential(*blocks), stack, "tanh")


class Residual(Parts):
    def forward(self, x):
        return x + super().forward(x)


class Twice(Parts):
    def forward(self, x):
        return self.fc2(self.act(1.001 * self.fc1(x)))


class Swapped(Parts):
    def forward(self, x):
        return self.fc1(self.act(self.fc2(x)))


class Broken(Parts):
    def forward(self, x):
        raise RuntimeError("boom")


class Scaled(nn.Linear):
    def forward(self, x):
        return 1.01 * super().forward(x)


class Relu(Functional):
    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def alternating():
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 4))


EXPECTED = "source: expected two dense layers and a GELU between them"
REFUSED = {
    "residual": (Residual, "source: Residual.forward doesn't compute"),
    "scale": (Twice, "source: Twice.forward doesn't compute .* differs by up to [0-9]"),
    "swapped": (Swapped, "source: Swapped.forward doesn't compute"),
    "broken": (Broken, "source: Broken.forward failed .* boom"),
    "residual around a stack": (lambda: nn.Sequential(Parts(), Residual()), "source: Residual.forward doesn't"),
    "linear of another kind": (
        lambda: nn.Sequential(Scaled(4, 6), nn.GELU(), nn.Linear(6, 4)),
        r"source: 0\.weight: its forward doesn't compute x @ weight \+ bias",
    ),
    "relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)), "source: ReLU is no GELU"),
    "relu in forward": (Relu, "source: what Relu.forward does between its dense layers is no GELU"),
    "no second layer": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU()), f"{EXPECTED}; Sequential has 0=Lin.*1=GELU"),
    "nothing": (nn.GELU, "GELU has no children"),
    "empty": (nn.Sequential, "Sequential has no children"),
    "alternating": (alternating, f"{EXPECTED}, and nothing after it; after 1 such; .* 3=GELU, 4=Linear"),
    "norm after it": (lambda: nn.Sequential(*flat(4, 6, 4), nn.LayerNorm(4)), "after 1 such; .*3=LayerNorm"),
    "norm within it": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 4)), "1=LayerNorm, 2=GELU",
    ),
    "learnt activation": (lambda: nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 4)), "1=PReLU"),
    "three layers": (lambda: Loop(*flat(4, 6, 4)), EXPECTED),
    "blocks that don't chain": (lambda: nn.Sequential(*flat(4, 6, 5), *flat(4, 6, 5)), "block 0 gives 5 .*expects 4"),
    "two formulas": (
        lambda: nn.ModuleList([torch_block(4, 6), torch_block(4, 6, "tanh")]),
        "expected blocks that all state one formula.* block 0 'none', block 1 'tanh'",
    ),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(4, 6, 1), nn.GELU(), nn.Conv2d(6, 4, 1)), "0=Conv2d"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_modules_that_are_another_block(kind):
    make, message = REFUSED[kind]
    module = make()
    with pytest.raises(ValueError, match=message):
        read_source(module)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert all(m.training for m in module.modules())


@pytest.mark.parametrize("kind", ["residual", "scale", "swapped", "alternating", "relu in forward"])
def test_feed_forward_refuses_the_same(kind):
    make, message = REFUSED[kind]
    with pytest.raises(ValueError, match=message.replace("source: ", "module: ")):
        gf.FeedForward.from_torch(make())


def test_feed_forward_is_one_block():
    with pytest.raises(ValueError, match="module: expected one feed-forward block, got 2 in a row"):
        gf.FeedForward.from_torch(flat(4, 6, 5, 7, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_are_kept(dtype):
    module = torch_block(64, 256).to(dtype)
    stack = read_source(module)
    assert stack.dtype == {torch.bfloat16: ml_dtypes.bfloat16}.get(dtype, str(dtype).rpartition(".")[2])
    np.testing.assert_array_equal(stack.blocks[0].w1.astype(np.float64), module.fc1.weight.detach().double().T.numpy())
    functional = Functional().to(dtype)  # its activation is judged in float32: bfloat16 couldn't tell the forms apart
    assert read_source(functional).approximate == "tanh"


def test_a_residual_is_seen_in_bfloat16():
    with pytest.raises(ValueError, match=r"Residual\.forward doesn't compute"):
        read_source(Residual().to(torch.bfloat16))


def test_nonfinite_weights_of_a_module():
    module = torch_block(4, 6)
    with torch.no_grad():
        module.fc2.weight[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"fc2\.weight: expected finite weights, got nan at \(1, 2\); 1 of 24"):
        read_source(module)
    stack = read_source(module, allow_nonfinite=True)
    assert np.isnan(stack.blocks[0].w2[2, 1])
    residual = Residual()
    with torch.no_grad():
        residual.fc2.weight[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"Residual\.forward doesn't compute"):  # the other outputs still show it
        read_source(residual, allow_nonfinite=True)


def test_module_on_the_meta_device():
    with pytest.raises(TypeError, match=r"fc1\.weight: .*can't be read"):
        read_source(torch_block(4, 6).to("meta"))


@pytest.mark.parametrize("before", [
    lambda x: x.clamp(-20, 20), lambda x: torch.nan_to_num(x), lambda x: torch.where(x > 40, 40.0, x),
])  # fmt: skip
def test_a_clamp_shows_far_out(before):
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.act, self.fc2 = nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4)

        def forward(self, x):
            return self.fc2(self.act(self.fc1(before(x))))

    for read in (read_source, gf.FeedForward.from_torch):
        with pytest.raises(ValueError, match=r"Clamped\.forward doesn't compute dense\(gelu\(dense\(x\)\)\)"):
            read(Clamped())
