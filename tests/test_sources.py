import io
import re

import numpy as np
import pytest
from blocks import NAMES, arrays, torch_block
from safetensors.numpy import save_file

from gelu_fast.export.sources import TORCH_NAMES, load_weights, random_block, read_source


def torch_names(block):
    """The same weights under PyTorch's names, in PyTorch's orientation."""
    w1, b1, w2, b2 = block
    return {"fc1.weight": w1.T.copy(), "fc1.bias": b1, "fc2.weight": w2.T.copy(), "fc2.bias": b2}


def assert_same(stack, weights):
    (block,) = stack.blocks
    for name, want in zip(NAMES, weights, strict=True):
        got = getattr(block, name)
        if want is None:
            assert got is None
        else:
            np.testing.assert_array_equal(got, want)
            assert got.dtype.isnative
            assert got.flags.c_contiguous


def unusual_read_only(a):
    a = a.copy()
    a.setflags(write=False)
    return a


def unusual_strided(a):
    wide = np.full(tuple(2 * n for n in a.shape), np.nan, a.dtype)
    view = wide[(slice(None, None, 2),) * a.ndim]
    view[...] = a
    return view


@pytest.mark.parametrize(
    "change",
    [unusual_read_only, lambda a: a.astype(">f4"), np.asfortranarray, unusual_strided, lambda a: a[::-1].copy()[::-1]],
    ids=["read-only", "big-endian", "fortran", "strided", "reversed"],
)
def test_arrays_of_any_layout(change):
    weights = arrays()
    assert_same(read_source(tuple(change(a) for a in weights)), weights)


def test_source_is_not_written_to():
    weights = arrays()
    before = [a.copy() for a in weights]
    read_source(weights)
    for a, b in zip(weights, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("naming", ["plain", "torch"])
def test_files(tmp_path, suffix, naming):
    weights = arrays(5, 7, 3)
    tensors = dict(zip(NAMES, weights, strict=True)) if naming == "plain" else torch_names(weights)
    path = tmp_path / f"weights.{suffix}"
    if suffix == "npz":
        np.savez(path, **tensors)
    else:
        save_file(tensors, path)
    assert_same(read_source(path), weights)
    assert_same(read_source(str(path)), weights)


def test_biases_may_be_missing(tmp_path):
    weights = arrays(bias=False)
    assert_same(read_source(weights), weights)
    np.savez(tmp_path / "w.npz", w1=weights[0], w2=weights[2])
    assert_same(read_source(tmp_path / "w.npz"), weights)


def test_state_dict_with_gradients():
    module = torch_block(4, 6)
    w = module.state_dict(keep_vars=True)
    assert w["fc1.weight"].requires_grad
    assert_same(read_source(w), [w[k].detach().numpy().T for k in TORCH_NAMES.values()])


def changed(name, value):
    weights = dict(zip(NAMES, arrays(4, 6, 5), strict=True))
    weights[name] = value(weights[name]) if callable(value) else value
    return tuple(weights[n] for n in NAMES)


def with_value(value):
    def change(array):
        array = array.copy()
        array.flat[3] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("w1", None, ValueError, r"w1: expected an array of shape \(in, hidden\), got None"),
        ("w2", None, ValueError, r"w2: expected an array of shape \(hidden, out\), got None"),
        ("w1", lambda a: a[0], ValueError, r"w1: expected shape \(in, hidden\).*got \(6,\)"),
        ("w2", lambda a: a[None], ValueError, r"w2: expected shape \(hidden, out\).*got \(1, 6, 5\)"),
        ("w1", lambda a: a[:0], ValueError, r"w1: expected shape .*got \(0, 6\)"),
        ("w2", lambda a: a[:-1], ValueError, r"w2: doesn't chain with w1 .*expected \(6, out\), got \(5, 5\)"),
        ("b1", lambda a: a[1:], ValueError, r"b1: expected shape \(6,\), got \(5,\)"),
        ("b1", lambda a: a[:, None], ValueError, r"b1: expected shape \(6,\), got \(6, 1\)"),
        ("b2", lambda a: a[:1], ValueError, r"b2: expected shape \(5,\), got \(1,\)"),
        ("b2", np.float32(1), ValueError, r"b2: expected shape \(5,\), got \(\)"),
        ("w1", lambda a: a.astype(np.int8), TypeError, r"w1: expected .* bfloat16, float32, float64, got dtype int8"),
        ("b2", lambda a: a.astype(bool), TypeError, "b2: expected weights of .*, got dtype bool"),
        ("w2", lambda a: a.astype(complex), TypeError, "w2: expected weights of .* complex128"),
        ("w1", np.array("text"), TypeError, "w1: expected weights of .*, got dtype <U4"),
        ("w1", [[1.0], [2.0, 3.0]], ValueError, "w1: not an array"),
        ("w1", with_value(np.nan), ValueError, r"w1: expected finite weights, got nan at \(0, 3\); 1 of 24"),
        ("w2", with_value(-np.inf), ValueError, r"w2: expected finite weights, got -inf at \(0, 3\)"),
        ("b1", with_value(np.inf), ValueError, r"b1: expected finite weights, got inf at \(3,\)"),
    ],
)
def test_bad_tensors_are_named(name, value, kind, message):
    with pytest.raises(kind, match=message):
        read_source(changed(name, value))


def test_weights_in_torch_orientation_get_a_hint():
    w1, b1, w2, b2 = arrays(4, 6)  # these chain the wrong way round too: only the bias shows it
    with pytest.raises(ValueError, match=r"b1: expected shape \(4,\), got \(6,\); .*pass weight\.T"):
        read_source((w1.T, b1, w2.T, b2))
    w1, b1, w2, b2 = arrays(4, 6, 5)
    with pytest.raises(ValueError, match=r"w2: doesn't chain with w1 .*pass weight\.T"):
        read_source((w1.T, b1, w2.T, b2))


def test_errors_use_the_names_of_the_file():
    tensors = torch_names(arrays(4, 6))
    tensors["fc2.weight"] = tensors["fc2.weight"][:, 1:]
    message = re.escape("fc2.weight: doesn't chain with fc1.weight of shape (6, 4): expected (out, 6), got (4, 5)")
    with pytest.raises(ValueError, match=message):
        read_source(tensors)


def test_mixed_dtypes_are_one_error_naming_all():
    w1, b1, w2, b2 = arrays()
    message = "mixed dtypes: w1 is float64, b1 is float32, w2 is float32, b2 is float16"
    block = read_source((w1.astype(np.float64), b1, w2, b2.astype(np.float16)))
    with pytest.raises(TypeError, match=message):
        _ = block.dtype
    assert block.astype(np.dtype(np.float32)).dtype == np.float32


def test_overflow_in_a_conversion_names_the_tensor():
    w1, b1, w2, b2 = arrays(dtype=np.float64)
    w2[1, 2] = 1e300
    with pytest.raises(ValueError, match=r"w2 as float32: expected finite weights, got inf at \(1, 2\)"):
        read_source((w1, b1, w2, b2)).astype(np.dtype(np.float32))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source: expected .*got int"),
        (None, "got NoneType"),
        (arrays()[:3], "got tuple of length 3"),
        (arrays()[0], "got ndarray of length 16"),
    ],
)
def test_what_is_no_source(source, message):
    with pytest.raises(TypeError, match=message):
        read_source(source)


def test_names_that_are_missing_or_too_many():
    tensors = dict(zip(NAMES, arrays(), strict=True))
    with pytest.raises(ValueError, match="w3: not part of a block"):
        read_source({**tensors, "w3": tensors["w1"]})
    with pytest.raises(ValueError, match=r"expected tensors w1, .*got 'b1', 'b2', 'w1'"):
        read_source({name: tensors[name] for name in ("w1", "b1", "b2")})


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"source: no weights file at .*none\.npz"):
        load_weights(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"\.npz or \.safetensors.*save the state_dict as \.safetensors"):
        load_weights("model.pt")
    for name in ("bad.npz", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"\x10not an archive at all" * 9)
        with pytest.raises(ValueError, match=f"{re.escape(name)}: can't read the file"):
            load_weights(tmp_path / name)


def test_npz_with_one_damaged_tensor(tmp_path):
    buffer = io.BytesIO()
    w1, b1, w2, b2 = arrays()
    np.savez(buffer, w1=w1, b1=b1, w2=w2, b2=b2)
    damaged = bytearray(buffer.getvalue())
    at = damaged.find(w2.tobytes())
    damaged[at + 5] ^= 0xFF
    (tmp_path / "w.npz").write_bytes(damaged)
    with pytest.raises(ValueError, match="can't read w2: Bad CRC-32"):
        load_weights(tmp_path / "w.npz")


class Boom:
    ran = False

    def __reduce__(self):
        return (setattr, (Boom, "ran", True))


def test_npz_is_never_unpickled(tmp_path):
    np.savez(tmp_path / "w.npz", w1=np.array([Boom()], dtype=object))
    with pytest.raises(ValueError, match="can't read w1: it holds Python objects, which are never loaded"):
        load_weights(tmp_path / "w.npz")
    assert not Boom.ran


def test_random_block_depends_on_its_seed_alone():
    a, b, c = random_block(4, 6, 1), random_block(4, 6, 1), random_block(4, 6, 2)
    assert_same(read_source(a), [getattr(b, name) for name in NAMES])
    assert not np.array_equal(a.w1, c.w1)
    assert a.w1.shape == (4, 6)
    assert np.abs(a.w1).max() <= 0.5
    with pytest.raises(ValueError, match="hidden_features: expected at least 1, got 0"):
        random_block(4, 0, 1)
