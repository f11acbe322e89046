"""`gelu_fast.torch` beside ``torch.nn.GELU`` in eager mode; `make bench-torch`.

Answers are checked first; then both take turns in one process, on as many threads. Prints forward + backward of large
activations, small calls (and from which size ours is quicker), and whole models with `swap_gelu`.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import gelu_fast as gf
import gelu_fast.torch as gt
from gelu_fast.bench.contenders import Contender
from gelu_fast.bench.timing import FULL, SHORT, Effort, compare

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2}


def turns(ours: Callable[[], object], theirs: Callable[[], object], effort: Effort, threads: int) -> list[float]:
    """Microseconds."""
    pair = [Contender(n, c, lambda: np.empty(0)) for n, c in (("ours", ours), ("torch", theirs))]
    return [t.median / 1e3 for t in compare(pair, effort, threads)]


def forward_backward(module: torch.nn.Module, x: torch.Tensor, dy: torch.Tensor) -> Callable[[], object]:
    def call() -> object:
        x.grad = None
        module(x).backward(dy)
        return x.grad

    return call


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(";")[0])
    parser.add_argument("--full", action="store_true", help="measure longer")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    gf.set_num_threads(args.threads)
    effort, wrong = FULL if args.full else SHORT, 0
    console = Console(width=120)
    table = Table(title=f"microseconds, {args.threads} threads, {gf.cpu_info()['isa']}, torch {torch.__version__}")
    table.add_column("work", no_wrap=True)
    for name in ("gelu_fast", "torch", "torch/ours"):
        table.add_column(name, justify="right")

    def row(title: str, ours: Callable[[], object], theirs: Callable[[], object]) -> float:
        mine, other = turns(ours, theirs, effort, args.threads)
        table.add_row(title, f"{mine:,.1f}", f"{other:,.1f}", f"{other / mine:.2f}×")
        return other / mine

    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for form in ("none", "tanh"):
            x = torch.randn(32, 512, 3072 if args.full else 768).to(dtype).requires_grad_()
            dy = torch.randn_like(x)
            calls = [forward_backward(m, x, dy) for m in (gt.GELU(form), torch.nn.GELU(form))]
            found, want = (c().float() for c in calls)
            wrong += not torch.allclose(found, want, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype])
            row(f"forward + backward, {form}, {str(dtype)[6:]}, {tuple(x.shape)}", *calls)
    quicker: dict[str, int] = {}
    for grad in (False, True):
        label = "forward + backward" if grad else "forward"
        for size in (1, 256, 4096, 65536, 262144, 1 << 20, 1 << 22):
            x, dy = torch.randn(size, requires_grad=grad), torch.randn(size)
            pair = (gt.GELU(), torch.nn.GELU())
            calls = [forward_backward(m, x, dy) if grad else lambda m=m, x=x: m(x) for m in pair]
            if row(f"{label}, {size:,} float32", *calls) > 1:
                quicker.setdefault(label, size)
    models = {
        "BERT, 4 layers of 256": BertModel(BertConfig(vocab_size=999, hidden_size=256, num_hidden_layers=4,
                                                      num_attention_heads=4, intermediate_size=1024)),
        "GPT-2, 4 layers of 256": GPT2LMHeadModel(GPT2Config(vocab_size=999, n_embd=256, n_layer=4, n_head=4,
                                                             bos_token_id=1, eos_token_id=2)),
    }  # fmt: skip
    ids = torch.randint(0, 999, (8, 128))
    for title, model in models.items():
        theirs, ours = model.eval(), copy.deepcopy(model).eval()
        gt.swap_gelu(ours)
        with torch.inference_mode():
            found, want = ours(input_ids=ids)[0], theirs(input_ids=ids)[0]
            wrong += not torch.allclose(found, want, rtol=1e-4, atol=1e-4)
            row(f"{title}, 8 × 128 tokens", lambda m=ours: m(input_ids=ids), lambda m=theirs: m(input_ids=ids))
    console.print(table)
    for label in ("forward", "forward + backward"):
        console.print(f"{label}: torch's own is quicker below {quicker.get(label, 'all these'):,} elements"
                      if label in quicker else f"{label}: torch's own is quicker at all these sizes")  # fmt: skip
    if wrong:
        console.print(f"{wrong} answers WRONG", style="red")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
