"""Modules of torch that have no GELU, some of them near one: what `inspect` may not take for one."""

from models_of_others import HF, QUICK


def without():
    """Models of torch without a GELU, some of them near one; name: (module, example)."""
    import torch
    from torch import nn
    from transformers.activations import ACT2FN

    class Normal(nn.Module):
        """x·Φ(x - 1), Φ(x), 2x·Φ(x), x·Φ(-x): none is a GELU."""

        def __init__(self, kind):
            super().__init__()
            self.kind = kind

        def forward(self, x):
            phi = [x - 1, x, x, -x, x * 1.02][self.kind].mul(0.5**0.5).erf().add(1).mul(0.5)
            return [x * phi, phi, 2 * x * phi, x * phi, x * phi][self.kind]

    class Sharp(nn.Module):
        """Swish with another slope."""

        def __init__(self, slope):
            super().__init__()
            self.slope = slope

        def forward(self, x):
            return x * (self.slope * x).sigmoid()

    class Recurrent(nn.Module):
        """A gated recurrence by hand: x·σ(y) and tanh, of different tensors."""

        def forward(self, x):
            return torch.tanh(x[:, :1] * 2) * torch.sigmoid(QUICK * x[:, 1:]) + x[:, :1] * torch.sigmoid(
                QUICK * x[:, 2:3]
            )

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.inner(x, x, x, need_weights=False)[0] + x)

    names = ["SiLU", "Mish", "Hardswish", "Softplus", "ELU", "SELU", "CELU", "Sigmoid", "Tanh", "LogSigmoid"]
    names += ["Softsign", "Hardsigmoid", "Tanhshrink", "ReLU6", "LeakyReLU"]
    found = {name: (getattr(nn, name)(), None) for name in names}
    found |= {f"near {kind}": (Normal(kind), None) for kind in range(5)}
    found |= {f"swish {slope}": (Sharp(slope), None) for slope in (1.0, 1.6, 1.8, 2.0)}
    others = set(ACT2FN) - set(HF) - {"linear", "prelu", "xielu"}
    found |= {f"HF {name}": (ACT2FN[name], None) for name in sorted(others)}
    found |= {"recurrent": (Recurrent(), None), "softmax": (nn.Softmax(-1), None), "GLU": (nn.GLU(), None),
              "LayerNorm": (nn.LayerNorm(8), None), "attention": (Attention(), torch.randn(2, 5, 8)),
              "softmax by hand": (softmax_by_hand(), None)}  # fmt: skip
    return {name: (module, torch.randn(3, 8) if x is None else x) for name, (module, x) in found.items()}


def softmax_by_hand():
    from torch import nn

    class Softmax(nn.Module):
        def forward(self, x):
            e = (x - x.amax(-1, keepdim=True)).exp()
            return e / e.sum(-1, keepdim=True)

    return Softmax()
