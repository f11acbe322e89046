"""`swap_gelu` on models that others made: same outputs, same training step, undone without a trace."""

import copy

import pytest
import torch

import gelu_fast.torch as gt

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config), 3, "none"


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return GPT2LMHeadModel(config), 2, "tanh"


@pytest.mark.parametrize("make", [bert, gpt2])
def test_hugging_face(make):
    torch.manual_seed(0)
    model, count, form = make()
    ours = copy.deepcopy(model)
    swap = gt.swap_gelu(ours)
    assert [r.approximate for r in swap] == [form] * count
    assert all(isinstance(r.new, gt.GELU) and r.name for r in swap)
    assert not gt.swap_gelu(ours)  # nothing is left
    ids = torch.randint(0, 99, (2, 11))
    labels = torch.tensor([0, 1]) if make is bert else ids
    for step in range(2):
        outputs = [m(input_ids=ids, labels=labels) for m in (model, ours)]
        tolerance = 1e-4 if step else 1e-5
        torch.testing.assert_close(outputs[1].logits, outputs[0].logits, rtol=tolerance, atol=tolerance)
        for m, o in zip((model, ours), outputs, strict=True):
            m.zero_grad()
            o.loss.backward()
        for p, q in zip(model.parameters(), ours.parameters(), strict=True):
            if p.grad is not None:
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-4)
            with torch.no_grad():
                for t in (p, q):
                    if t.grad is not None:
                        t -= 0.1 * t.grad
    swap.undo()
    assert str(ours) == str(model)
    assert not swap


def test_every_activation_of_hugging_face():
    from transformers.activations import ACT2FN

    for name, form in {
        "gelu": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh", "quick_gelu": "quick",
        "gelu_python": "none", "gelu_accurate": "tanh",
    }.items():  # fmt: skip
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), ACT2FN[name], torch.nn.ReLU())
        x = torch.randn(5, 3)
        before = model(x)
        (found,) = gt.swap_gelu(model)
        assert (found.name, found.approximate) == ("1", form)
        torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)


def test_functions_and_shared_modules():
    class Old(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.activation_fn = torch.nn.functional.gelu  # as fairseq and older Hugging Face models hold it
            self.other = torch.nn.functional.relu
            self.act = self.again = torch.nn.GELU("tanh")
            self.eval()

        def forward(self, x):
            return self.again(self.act(self.activation_fn(self.other(x))))

    class Learnt(torch.nn.Module):
        """Named so, but with a parameter: left alone."""

        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x):
            return torch.nn.functional.gelu(x * self.scale)

    LearntGELU = type("LearntGELU", (Learnt,), {})
    NotGELU = type("NotGELU", (torch.nn.ReLU,), {})
    model = torch.nn.Sequential(Old(), LearntGELU(), NotGELU())
    x = torch.randn(6)
    before, text = model(x), str(model)
    swap = gt.swap_gelu(model)
    assert {r.name for r in swap} == {"0.activation_fn", "0.act", "0.again"}
    assert model[0].act is model[0].again
    assert not model[0].act.training
    torch.testing.assert_close(model(x), before)
    swap.undo()
    assert str(model) == text
    assert model[0].activation_fn is torch.nn.functional.gelu
    assert model[0].act is model[0].again
    torch.testing.assert_close(model(x), before)


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_timm(timm_mlp, form):
    mlp = timm_mlp(8, 12, act_layer=lambda: torch.nn.GELU(form), drop=0.1).eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        before = mlp(x)
    swap = gt.swap_gelu(mlp)
    assert type(mlp.act) is gt.GELU
    assert mlp.act.approximate == form
    torch.testing.assert_close(mlp(x), before, rtol=0, atol=1e-5)
    swap.undo()
    assert type(mlp.act) is torch.nn.GELU


def test_a_gelu_itself_is_refused():
    with pytest.raises(ValueError, match=r"model: is itself a GELU.*gelu_fast\.torch\.GELU\('tanh'\)"):
        gt.swap_gelu(torch.nn.GELU("tanh"))
    assert gt.swap_gelu(gt.GELU()) == []  # ours already


def test_nothing_is_patched_on_import():
    assert torch.nn.functional.gelu is torch._C._nn.gelu
    assert torch.nn.GELU.__module__ == "torch.nn.modules.activation"
