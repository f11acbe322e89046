"""Files of a model: what is missing, what leads out of the folder, what doesn't fit."""

import hashlib
import json
import os
import tracemalloc

import numpy as np
import onnx
import pytest
from blocks import arrays
from onnx import TensorProto, helper, numpy_helper
from test_verify import foreign

from gelu_fast.export import verify
from gelu_fast.export.loading import load, tensors


@pytest.fixture
def outside(tmp_path):
    """A model whose weights stand in m.onnx.data, with a manifest."""
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / "m.onnx"
    onnx.save(foreign(arrays(16, 16)), path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    write_manifest(path, path.with_name("m.onnx.data"))
    return path


def write_manifest(path, *data):
    files = [
        {"name": p.name, "size": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()}
        for p in (path, *data)
    ]
    path.with_name(path.name + ".manifest.json").write_text(json.dumps({"format": 1, "files": files}))


def change(path, index=0, **entries):
    """Change an external tensor's entries, and drop the manifest."""
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[index]
    for key, value in entries.items():
        found = [entry for entry in tensor.external_data if entry.key == key]
        if found:
            found[0].value = str(value)
    path.write_bytes(model.SerializeToString())
    path.with_name(path.name + ".manifest.json").unlink(missing_ok=True)
    return tensor.name


def test_whole(outside):
    data = outside.with_name("m.onnx.data")
    loaded = load(outside)
    assert loaded.files == (outside, data)
    assert loaded.size == outside.stat().st_size + data.stat().st_size
    assert loaded.sha256 == hashlib.sha256(outside.read_bytes()).hexdigest()
    assert loaded.folder == outside.parent
    assert loaded.manifest == outside.with_name("m.onnx.manifest.json")
    assert all(not tensor.raw_data for tensor in loaded.model.graph.initializer)
    report = verify(outside, arrays(16, 16))
    assert report.passed
    assert report.files == loaded.files
    assert report.manifest == loaded.manifest
    assert str(data) in str(report)


def test_wrong_weight_in_the_data_file(outside):
    w1, b1, w2, b2 = arrays(16, 16)
    report = verify(outside, (w1, b1, w2 * np.float32(1.01), b2))
    assert report.passed is False


def test_only_the_onnx_file_was_moved(outside, tmp_path):
    moved = tmp_path / "m.onnx"
    moved.write_bytes(outside.read_bytes())
    with pytest.raises(
        FileNotFoundError, match=r"m\.onnx is not whole without m\.onnx\.data \(tensors A, a, B, b stand"
    ):
        load(moved)
    (tmp_path / "m.onnx.manifest.json").write_bytes(outside.with_name("m.onnx.manifest.json").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"m\.onnx\.data \(2,176 bytes, sha256 [0-9a-f]{64}; tensors A"):
        verify(moved, arrays(16, 16))


def test_files_that_differ_from_the_manifest(outside):
    data = outside.with_name("m.onnx.data")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.onnx\.data has sha256 .* the manifest says"):
        load(outside)
    data.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match=r"m\.onnx\.data has 2,177 bytes, the manifest says 2,176"):
        load(outside)


MANIFESTS = [
    "", "[]", '{"format": 2, "files": []}', '{"format": 1}', '{"format": 1, "files": [3]}',
    '{"format": 1, "files": [{"name": "../x", "size": 1, "sha256": ""}]}',
    '{"format": 1, "files": [{"name": "x", "size": "1", "sha256": ""}]}',
]  # fmt: skip
LOCATIONS = [
    "/etc/hostname", "../secret", "sub/../../secret", "..", "", "C:\\secret", "\\\\host\\x", "..\\secret", "a\0b",
]  # fmt: skip


@pytest.mark.parametrize("text", MANIFESTS)
def test_manifests_that_are_none(outside, text):
    outside.with_name("m.onnx.manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"m\.onnx\.manifest\.json is no manifest of format 1"):
        load(outside)


@pytest.mark.parametrize("location", LOCATIONS)
def test_locations_that_leave_the_folder(outside, location):
    (outside.parent.parent / "secret").write_bytes(bytes(4096))
    name = change(outside, location=location)
    with pytest.raises(ValueError, match=f"tensor {name!r} stands in .*; expected a file inside the model's folder"):
        load(outside)


def test_links_that_lead_out(outside):
    secret = outside.parent.parent / "secret"
    secret.write_bytes(bytes(4096))
    (outside.parent / "link").symlink_to(secret)
    name = change(outside, location="link")
    with pytest.raises(ValueError, match=f"tensor {name!r} stands in 'link', a link to {secret}"):
        load(outside)
    (outside.parent / "out").symlink_to(outside.parent.parent)
    change(outside, location="out/secret")
    with pytest.raises(ValueError, match=f"tensor {name!r} stands in 'out/secret', a link to"):
        load(outside)
    (outside.parent / "loop").symlink_to("loop")
    change(outside, location="loop")
    with pytest.raises((ValueError, FileNotFoundError), match="loop"):
        load(outside)


def test_links_that_stay_inside(outside):
    (outside.parent / "link").symlink_to("m.onnx.data")
    for index in range(4):
        change(outside, index, location="link")
    assert load(outside).files == (outside, outside.parent / "link")


def test_data_that_is_no_regular_file(outside):
    data = outside.with_name("m.onnx.data")
    data.unlink()
    for make in (data.mkdir, lambda: os.mkfifo(data)):
        make()
        with pytest.raises(ValueError, match=r"m\.onnx\.data is not a regular file"):
            load(outside)
        (data.rmdir if data.is_dir() else data.unlink)()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 2000}, r"in m\.onnx\.data: needs bytes 2000 to 3024, the file has 2176"),
        ({"offset": -1}, "expected a number of bytes as offset, got '-1'"),
        ({"offset": "x"}, "expected a number of bytes as offset, got 'x'"),
        ({"offset": "9" * 30}, "expected a number of bytes as offset"),
        ({"length": 12}, r"shape \(16, 16\) needs 1024 bytes, the model says 12"),
        ({"length": 10**12}, "needs 1024 bytes, the model says 1000000000000"),
    ],
)
def test_offsets_and_lengths_that_do_not_fit(outside, entries, message):
    name = change(outside, **entries)
    with pytest.raises(ValueError, match=f"tensor {name!r} {message}" if message[0] == "i" else message):
        load(outside)


def test_shapes_that_lie(outside):
    model = onnx.load(outside)
    for dims in ([2**40, 2**40], [16, 2**62], [-1, 16]):
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)
        with pytest.raises(ValueError, match=r"tensor 'A': (shape|negative)"):
            load(model)
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    values.dims[0] = 10**9
    model.graph.initializer[0].CopyFrom(values)
    with pytest.raises(ValueError, match=r"tensor 'v': shape \(1000000000,\) needs 1000000000 values, the model has 2"):
        load(model)


def test_a_huge_data_file_is_not_read(outside):
    size = 3 << 30
    data = outside.with_name("m.onnx.data")
    with data.open("r+b") as stream:
        stream.truncate(size)  # sparse
    model = onnx.load(outside, load_external_data=False)
    tensor = model.graph.initializer[0]
    tensor.dims[0] = size // 64
    next(entry for entry in tensor.external_data if entry.key == "length").value = str(size)
    outside.write_bytes(model.SerializeToString())
    outside.with_name("m.onnx.manifest.json").unlink()
    tracemalloc.start()
    loaded = load(outside)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded.size > size
    assert peak < 10 << 20


def test_model_in_memory_has_no_folder(outside):
    with pytest.raises(
        ValueError, match=r"tensor 'A' stands outside the model, in 'm\.onnx\.data', and a model in memory"
    ):
        load(onnx.load(outside, load_external_data=False))
    assert load(onnx.load(outside)).path is None


def test_tensors_in_subgraphs_and_functions_are_found(tmp_path):
    hidden = [numpy_helper.from_array(np.zeros(2, np.float32), name) for name in ("in_if", "in_function")]
    branch = helper.make_graph([helper.make_node("Constant", [], ["c"], value=hidden[0])], "g", [], [])
    graph = helper.make_graph(
        [helper.make_node("If", ["q"], ["r"], then_branch=branch, else_branch=branch)], "m", [], []
    )
    body = [helper.make_node("Constant", [], ["y"], value=hidden[1])]
    function = helper.make_function("local", "F", [], ["y"], body, [helper.make_opsetid("", 20)])
    model = helper.make_model(graph, functions=[function])
    assert {tensor.name for tensor in tensors(model)} == {"in_if", "in_function"}
    inside = model.functions[0].node[0].attribute[0].t
    inside.data_location = TensorProto.EXTERNAL
    inside.external_data.add(key="location", value="../x")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"tensor 'in_function' stands in '\.\./x'"):
        load(tmp_path / "m.onnx")


def test_subgraphs_without_end(tmp_path):
    """By hand, since protobuf doesn't even write them: GraphProto.node (1), NodeProto.attribute (5), its g (6)."""

    def field(number, content):
        length, sized = len(content), bytearray()
        while length > 127:
            sized.append(length % 128 + 128)
            length //= 128
        return bytes([number * 8 + 2, *sized, length]) + content

    graph = b""
    for _ in range(5000):
        graph = field(1, field(5, field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(field(7, graph))
    with pytest.raises(ValueError, match=r"m\.onnx is not an ONNX model, or is damaged: .*"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.BFLOAT16, TensorProto.BOOL])
def test_packed_and_small_types(kind):
    tensor = helper.make_tensor("t", kind, [3], [1, 0, 1])
    raw = numpy_helper.from_array(numpy_helper.to_array(tensor), "t")
    assert load(helper.make_model(helper.make_graph([], "g", [], [], [tensor, raw]))).path is None
