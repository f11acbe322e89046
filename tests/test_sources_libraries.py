"""The blocks of Hugging Face's and timm's models, which are what most people have, and of our own FeedForward."""

import numpy as np
import pytest
import torch
from blocks import arrays, rows, run64
from transformers import BertConfig, CLIPTextConfig, GPT2Config
from transformers.models.bert.modeling_bert import BertIntermediate, BertLayer, BertOutput
from transformers.models.clip.modeling_clip import CLIPMLP
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP, GPT2Block

import gelu_fast as gf
from gelu_fast.export.sources import read_source

BERT = BertConfig(hidden_size=8, intermediate_size=8, num_attention_heads=2)  # square: only values show a transpose
FORMS = {"gelu": "none", "gelu_python": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "quick_gelu": "quick"}


def double(run, x):
    with torch.no_grad():
        return run(torch.from_numpy(x)).numpy()


def assert_reads(source, run, form):
    """`read_source` and `FeedForward.from_torch` both give what `run` computes in double precision."""
    stack = read_source(source)
    assert stack.approximate == form
    x = rows(stack.in_features)
    want = double(run, x)
    np.testing.assert_allclose(run64(x, stack.blocks, form), want, rtol=1e-12, atol=1e-13)
    ff = gf.FeedForward.from_torch(source)
    assert (ff.approximate, ff.dtype) == (form, np.float64)
    np.testing.assert_allclose(ff(x), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FORMS)
def test_bert_pair(name):
    config = BertConfig(**{**BERT.to_dict(), "hidden_act": name})
    pair = BertIntermediate(config).double().eval(), BertOutput(config).double().eval()
    with torch.no_grad():
        for module in (pair[0].dense, pair[1].dense):
            module.bias.normal_()
    assert_reads(pair, lambda x: pair[1].dense(pair[0](x)), FORMS[name])
    assert_reads(list(pair), lambda x: pair[1].dense(pair[0](x)), FORMS[name])


def test_bert_layer_and_its_errors():
    layer = BertLayer(BERT).double().eval()
    assert_reads(layer, lambda x: layer.output.dense(layer.intermediate(x)), "none")
    layer.float()
    with torch.no_grad():
        layer.output.dense.weight[2, 3] = torch.inf
    with pytest.raises(ValueError, match=r"output\.dense\.weight: expected finite weights, got inf at \(2, 3\)"):
        read_source(layer)
    with pytest.raises(ValueError, match=r"source: .*expected two dense layers"):
        read_source((layer.output, layer.intermediate))


def test_bert_pair_with_another_activation():
    config = BertConfig(**{**BERT.to_dict(), "hidden_act": "relu"})
    with pytest.raises(ValueError, match="source: ReLU is no GELU"):
        read_source((BertIntermediate(config), BertOutput(config)))


@pytest.mark.parametrize("hidden", [8, 20])
def test_gpt2(hidden):
    """Case 13: Conv1D stores (in, out), and gelu_new is the tanh form; square, only values show the orientation."""
    mlp = GPT2MLP(hidden, GPT2Config(n_embd=8, n_head=2)).double().eval()
    with torch.no_grad():
        mlp.c_fc.bias.normal_()
    assert_reads(mlp, mlp, "tanh")
    stack = read_source(mlp)
    np.testing.assert_array_equal(stack.blocks[0].w1, mlp.c_fc.weight.detach().numpy())


def test_whole_gpt2_block_is_refused():
    block = GPT2Block(GPT2Config(n_embd=8, n_head=2))
    with pytest.raises(ValueError, match=r"expected two dense layers .* GPT2Block has ln_1=LayerNorm, attn=GPT2"):
        read_source(block)


def test_clip():
    mlp = CLIPMLP(CLIPTextConfig(hidden_size=8, intermediate_size=8)).double().eval()
    assert_reads(mlp, mlp, "quick")


def test_linear_and_conv1d_in_one_block():
    mlp = GPT2MLP(8, GPT2Config(n_embd=8, n_head=2))
    mlp.c_proj = torch.nn.Linear(8, 8)
    with pytest.raises(ValueError, match=r"source: c_fc, c_proj: expected two nn\.Linear or two Conv1D"):
        read_source(mlp)


def test_several_bert_layers_are_a_stack():
    layers = [BertLayer(BERT).double().eval() for _ in range(3)]
    stack = read_source(layers)
    x = rows(8)

    def run(x):
        for layer in layers:
            x = layer.output.dense(layer.intermediate(x))
        return x

    np.testing.assert_allclose(run64(x, stack.blocks, "none"), double(run, x), rtol=1e-12, atol=1e-13)


def test_timm(timm_mlp):
    mlp = timm_mlp(8, 12, drop=0.1).double().eval()
    assert list(dict(mlp.named_children())) == ["fc1", "act", "drop1", "norm", "fc2", "drop2"]
    assert_reads(mlp, mlp, "none")
    mlp = timm_mlp(8, 8, act_layer=lambda: torch.nn.GELU("tanh"), bias=False).double().eval()
    assert_reads(mlp, mlp, "tanh")
    with pytest.raises(ValueError, match="norm=LayerNorm"):
        read_source(timm_mlp(8, 12, norm_layer=torch.nn.LayerNorm))
    with pytest.raises(ValueError, match="fc1=Conv2d"):
        read_source(timm_mlp(8, 12, use_conv=True))


@pytest.mark.parametrize("form", ["none", "tanh", "quick"])
def test_feed_forward(form):
    weights = arrays(4, 6, 3, dtype=np.float64)
    stack = read_source(gf.FeedForward(*weights, form))
    assert stack.approximate == form
    assert stack.dtype == np.float64
    np.testing.assert_allclose(
        run64(rows(4), stack.blocks, form), run64(rows(4), [weights], form), rtol=0, atol=0
    )
    pair = read_source([gf.FeedForward(*weights, form), gf.FeedForward(*arrays(3, 5, 2, dtype=np.float64), form)])
    assert pair.hidden_features == (6, 5)


def test_gated_feed_forward_is_refused():
    ff = gf.FeedForward(np.ones((4, 12)), None, np.ones((6, 3)), None, gated=True)
    with pytest.raises(ValueError, match=r"source: a gated FeedForward .*GEGLU.* isn't Linear, GELU, Linear"):
        read_source(ff)
    with pytest.raises(ValueError, match=r"source\[1\]: a gated FeedForward"):
        read_source([arrays(4, 6), ff])
