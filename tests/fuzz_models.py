"""Throws damaged ONNX models at inspect, rewrite and verify; one process, one seed after the other.

Usage: python fuzz_models.py SECONDS FIRST_SEED [COUNT]. Prints every seed whose damage led to something else than a
clear error, and how many were tried. A crash of the process is a finding too: the last seed on standard error is it.
"""

import copy
import random
import sys
import tempfile
import time
import warnings

import numpy as np
from onnx import ModelProto, helper
from spellings import EXACT, QUICK, TANH, build

from gelu_fast.export import inspect, rewrite, verify

CLEAR = (ValueError, TypeError, FileNotFoundError, NotImplementedError)
SLOW = 20.0  # seconds for one model


def bases():
    """Small models of all kinds."""
    yield build(EXACT["div, half last"])
    yield build(TANH["sigmoid"], "float16", constants="nodes")
    yield build(QUICK["exp"], constants="inputs")
    yield build(EXACT["function body"], "float16", compute="float32")
    yield build("a = Gelu(h)", opset=20)
    model = build("a = own.F(h)")
    nodes = [helper.make_node("Erf", ["h"], ["e"]), helper.make_node("Mul", ["h", "e"], ["a"])]
    model.functions.append(helper.make_function("own", "F", ["h"], ["a"], nodes, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    yield model
    branch = helper.make_graph([helper.make_node("Gelu", ["h"], ["b"])], "then", [],
                               [helper.make_tensor_value_info("b", 1, None)])  # fmt: skip
    model = build("a = Relu(h)", opset=20)
    model.graph.node[1].CopyFrom(helper.make_node("If", ["yes"], ["a"], then_branch=branch, else_branch=branch))
    model.graph.initializer.append(helper.make_tensor("yes", 9, (), [True]))
    yield model


BASES = list(bases())


def flip(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(data)


def cut(rng, data):
    start = rng.randrange(len(data))
    return data[:start] if rng.random() < 0.5 else data[:start] + data[min(len(data), start + rng.randrange(40)) :]


def rename(rng, model):
    """Other edges: cycles, duplicate names, missing producers."""
    names = [n for node in model.graph.node for n in (*node.input, *node.output)] + ["", "nowhere"]
    for _ in range(rng.choice((1, 2, 4))):
        node = rng.choice(list(model.graph.node))
        place = rng.choice((node.input, node.output))
        if place:
            place[rng.randrange(len(place))] = rng.choice(names)
        else:
            place.append(rng.choice(names))


def lie(rng, model):
    """Shapes, types and numbers that can't be."""
    number = rng.choice((-1, 0, 3, 2**31, 2**62, 10**9))
    tensor = rng.choice(list(model.graph.initializer) or [model.graph.node[0].attribute.add().t])
    what = rng.randrange(7)
    if what == 0:
        tensor.dims.append(number)
    elif what == 1:
        tensor.data_type = rng.choice((0, 1, 8, 9, 10, 16, 17, 23, 999))
    elif what == 2:
        tensor.raw_data = bytes(rng.randrange(9))
    elif what == 3:
        tensor.data_location = 1
        location = rng.choice(("/etc/passwd", "../x", "", "a\0b", "m.data"))
        for key, value in (("location", location), ("offset", str(number))):
            tensor.external_data.add(key=key, value=value)
    elif what == 4:
        value = rng.choice([*model.graph.input, *model.graph.output])
        value.type.tensor_type.shape.dim.add(dim_value=number)
        value.type.tensor_type.elem_type = rng.choice((0, 1, 7, 8, 16, 999))
    elif what == 5:
        rng.choice(list(model.opset_import)).version = number
    else:
        node = rng.choice(list(model.graph.node))
        kinds = (("Gelu", ""), ("BiasGelu", "com.microsoft"), ("F", "own"), ("Cast", ""))
        node.op_type, node.domain = rng.choice(kinds)


def nest(rng, model):
    """Subgraphs in subgraphs, or a function that calls itself."""
    if rng.random() < 0.5 and model.functions:
        model.functions[0].node.append(helper.make_node("F", ["h"], ["a"], domain="own"))
        return
    graph = copy.deepcopy(model.graph)
    for _ in range(rng.choice((2, 5, 10, 20))):
        node = helper.make_node("If", ["x"], ["y"])
        node.attribute.add(name="then_branch", type=5).g.CopyFrom(graph)
        graph = helper.make_graph([node], "g", [], [])
        if graph.ByteSize() > 10**6:
            break
    model.graph.node.append(graph.node[0])


def damaged(seed):
    """A model, or the bytes of one, that is wrong in a way of its own."""
    rng = random.Random(seed)
    model = copy.deepcopy(rng.choice(BASES))
    for change in rng.sample((rename, lie, nest), rng.choice((0, 1, 1, 2))):
        change(rng, model)
    data = model.SerializeToString()
    for change in rng.sample((flip, cut), rng.choice((0, 0, 1, 2))):
        data = change(rng, data) or b"\0"
    return data


def attempt(data):
    """What went wrong in another way than by a clear error; None if nothing did."""
    started = time.monotonic()
    w = np.eye(4, dtype=np.float32)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(data)
        file.flush()
        try:
            inspect(file.name)
        except CLEAR:
            pass
        except Exception as error:  # what is looked for
            return f"inspect a file: {type(error).__name__}: {str(error)[:300]}"
    try:
        model = ModelProto.FromString(data)
    except Exception:  # protobuf's own
        return None
    for name, call in (
        ("inspect", lambda: inspect(model)),
        ("rewrite", lambda: rewrite(model, "primitive", opset=17, verify=False)),
        ("rewrite up", lambda: rewrite(model, "native", verify=False)),
        ("verify", lambda: verify(model, (w, None, w, None))),
    ):
        try:
            call()
        except CLEAR:
            pass
        except Exception as error:  # what is looked for
            return f"{name}: {type(error).__name__}: {str(error)[:300]}"
        if time.monotonic() - started > SLOW:
            return f"{name}: took {time.monotonic() - started:.0f} s"
    return None


def main():
    seconds, first = float(sys.argv[1]), int(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10**9
    warnings.simplefilter("ignore")
    end, seed, found = time.monotonic() + seconds, first, 0
    while time.monotonic() < end and seed < first + count:
        print(seed, file=sys.stderr, flush=True)
        wrong = attempt(damaged(seed))
        if wrong:
            found += 1
            print(f"seed {seed}: {wrong}", flush=True)
        seed += 1
    print(f"{seed - first} tried, {found} found")


if __name__ == "__main__":
    main()
