import numpy as np
import pytest
from blocks import torch_block
from torch import nn

from gelu_fast.export.sources import read_source


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_module_keeps_its_formula(approximate):
    block = read_source(torch_block(4, 6, approximate))
    assert block.approximate == approximate
    sequence = nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate=approximate), nn.Linear(6, 4, bias=False))
    block = read_source(sequence)
    assert block.approximate == approximate
    assert block.b2 is None
    np.testing.assert_array_equal(block.w1, sequence[0].weight.detach().numpy().T)


def test_module_keeps_its_mode_and_ignores_dropout():
    module = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 4))
    module[0].eval()  # dropout stays in training mode: run so, the module would look like another function
    modes = [m.training for m in module.modules()]
    assert read_source(module).hidden_features == 6
    assert [m.training for m in module.modules()] == modes


def test_module_whose_parts_are_registered_in_another_order():
    class Reordered(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc2, self.act, self.fc1 = nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)

        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    module = Reordered()
    np.testing.assert_array_equal(read_source(module).w1, module.fc1.weight.detach().numpy().T)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4)

    def forward(self, x):
        return x + self.fc2(self.act(self.fc1(x)))


class Twice(Residual):
    def forward(self, x):
        return self.fc2(self.act(1.001 * self.fc1(x)))


class Broken(Residual):
    def forward(self, x):
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Residual, "source: Residual.forward doesn't compute"),
        (Twice, "source: Twice.forward doesn't compute"),
        (Broken, "source: Broken.forward failed .* boom"),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)), "two nn.Linear and one nn.GELU.*1=ReLU"),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU()), "source: expected a module"),
        (lambda: nn.GELU(), "no children"),
        (
            lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4), nn.LayerNorm(4)),
            "3=LayerNorm",
        ),
    ],
)
def test_modules_that_are_another_block(module, message):
    with pytest.raises(ValueError, match=message):
        read_source(module())


def test_module_on_the_meta_device():
    with pytest.raises(TypeError, match=r"fc1\.weight: .*can't be read"):
        read_source(torch_block(4, 6).to("meta"))
