"""Cases 13 and 14 of shared/cases/kernels.md: arrays of Dask, pandas and xarray, and masked ones."""

import numpy as np
import pytest
from functions import DTYPES, FORMS, UNARY, same_bits, sample

import gelu_fast as gf


@pytest.mark.case(13)
def test_dask():
    """Stays lazy, in its chunks; right when computed, by its threads."""
    da = pytest.importorskip("dask.array", reason="needs dask")
    y = gf.gelu(da.ones(10, chunks=5))
    assert isinstance(y, da.Array)
    assert (y.dtype, y.chunks) == (np.float64, ((5, 5),))
    same_bits(y.compute(), np.full(10, gf.gelu(1.0)))

    computed = []
    x, dy = sample(3000).reshape(30, 100), sample(3000, seed=1).reshape(30, 100)
    bias = x[0].copy()

    def seen(block):
        computed.append(block.shape)
        return block

    with np.errstate(all="ignore"):  # dask's own products of infinities
        for dtype in DTYPES:
            a, d, b = x.astype(dtype), dy.astype(dtype), bias.astype(dtype)
            lazy = da.from_array(a, chunks=(7, 25)).map_blocks(seen, dtype=dtype, meta=a[:0, :0])
            slopes = da.from_array(d, chunks=(7, 25))
            for form in FORMS:
                calls = [(f(lazy, form), f(a, form)) for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2)]
                calls += zip(gf.gelu_with_grad(lazy, form), gf.gelu_with_grad(a, form), strict=True)
                calls += [(gf.gelu_backward(slopes, lazy, form), gf.gelu_backward(d, a, form)),
                          (gf.gelu_backward(d, lazy, form), gf.gelu_backward(d, a, form))]  # fmt: skip
                if dtype in (np.float32, np.float64):  # the steps are rounded each: of 16-bit types another result
                    dx, _ = gf.bias_gelu_backward(slopes, lazy, b, form)
                    calls += [(gf.bias_gelu(lazy, b, form), gf.bias_gelu(a, b, form)),
                              (dx, gf.bias_gelu_backward(d, a, b, form)[0]),
                              (gf.geglu(lazy, form), gf.geglu(a, form)),
                              (gf.geglu_backward(slopes[:, :50], lazy, form, gate="first"),
                               gf.geglu_backward(d[:, :50], a, form, gate="first"))]  # fmt: skip
                assert not computed, "not lazy"
                for found, want in calls:
                    assert isinstance(found, da.Array)
                    assert found.dtype == dtype
                    same_bits(found.compute(), want)
                computed.clear()
    with pytest.raises(TypeError, match="backend='numba' takes NumPy arrays"):
        gf.gelu(lazy, backend="numba")


@pytest.mark.case(14)
def test_masked_arrays():
    x = np.ma.masked_array(sample(24).reshape(3, 8), mask=np.arange(24).reshape(3, 8) % 5 == 0)
    for function, form in UNARY:
        y = function(x, form)
        assert type(y) is np.ma.MaskedArray
        assert (y.mask == x.mask).all()
        same_bits(y.data[~x.mask], function(x.data, form)[~x.mask])
    results = [gf.gelu_backward(x, x.data), gf.gelu_backward(x.data, x), gf.bias_gelu(x, x.data[0])]
    for y in (*gf.gelu_with_grad(x), *results):
        assert type(y) is np.ma.MaskedArray
        assert (y.mask == x.mask).all()
    dx, dbias = gf.bias_gelu_backward(x.data, x, np.ones(8, np.float32))
    assert (dx.mask == x.mask).all()
    np.testing.assert_array_equal(dbias.data, dx.filled(0).sum(0))
    y = gf.geglu(x)
    assert (y.mask == x.mask[:, :4] | x.mask[:, 4:]).all()
    assert (gf.geglu_backward(np.ones((3, 4), np.float32), x).mask[:, 4:] >= x.mask[:, 4:]).all()
    with pytest.raises(ValueError, match=r"bias: expected shape \(8,\)"):
        gf.bias_gelu(x, np.ones((3, 8), np.float32))
    # The sum of two int8 is made in the result's float type, as that of plain arrays.
    small, bias = np.array([[100, -100]], np.int8), np.array([100, -100], np.int8)
    same_bits(gf.bias_gelu(np.ma.masked_array(small), bias).data, gf.bias_gelu(small, bias))
    found = gf.geglu_backward(small[:, :1], np.ma.masked_array(small)).data
    same_bits(found, gf.geglu_backward(small[:, :1], small))


@pytest.mark.case(14)
def test_pandas():
    pd = pytest.importorskip("pandas", reason="needs pandas")
    series = pd.Series(sample(4), index=list("abcd"), name="n")
    frame = pd.DataFrame(sample(12).reshape(3, 4), index=[3, 1, 2], columns=list("pqrs"))
    mixed = pd.DataFrame({"a": np.ones(3, np.float32), "b": np.ones(3)})
    for function, form in UNARY:
        y = function(series, form)
        assert type(y) is pd.Series
        assert y.index.equals(series.index)
        assert y.name == "n"
        same_bits(y.to_numpy(), function(series.to_numpy(), form))
        y = function(frame, form)
        assert type(y) is pd.DataFrame
        assert y.index.equals(frame.index)
        assert y.columns.equals(frame.columns)
        same_bits(y.to_numpy(), function(frame.to_numpy(), form))
        assert list(function(mixed, form).dtypes) == [np.float32, np.float64]
    value, slope = gf.gelu_with_grad(frame)
    pd.testing.assert_frame_equal(value, gf.gelu(frame))
    pd.testing.assert_frame_equal(slope, gf.gelu_grad(frame))
    pd.testing.assert_frame_equal(gf.gelu_backward(frame, frame), frame * gf.gelu_grad(frame))
    missing = gf.gelu(pd.Series([1.0, None], dtype="Float32"))
    assert missing.dtype == "Float32"
    assert missing.isna().tolist() == [False, True]
    finite = frame.replace([np.inf, -np.inf], 1.0).fillna(0.0).astype(np.float32)
    bias = np.ones(4, np.float32)
    pd.testing.assert_frame_equal(gf.bias_gelu(finite, bias), gf.gelu(finite + bias))
    dx, dbias = gf.bias_gelu_backward(finite, finite, bias)
    assert type(dx) is pd.DataFrame
    assert list(dbias.index) == list("pqrs")
    np.testing.assert_allclose(dbias, gf.bias_gelu_backward(finite.to_numpy(), finite.to_numpy(), bias)[1], rtol=1e-5)
    for halved in (frame, series):  # halves have other labels: nothing sensible can come of it
        with pytest.raises(TypeError, match="x: expected an array whose last axis can be halved, got"):
            gf.geglu(halved)


@pytest.mark.case(14)
def test_xarray():
    xr = pytest.importorskip("xarray", reason="needs xarray")
    coords = {"time": [10, 20, 30], "place": list("abcd"), "height": ("place", [1.0, 2.0, 3.0, 4.0])}
    x = xr.DataArray(sample(12).reshape(3, 4), dims=("time", "place"), coords=coords, name="n")
    plain = x.to_numpy()
    results = [(function(x, form), function(plain, form)) for function, form in UNARY]
    results += zip(gf.gelu_with_grad(x), gf.gelu_with_grad(plain), strict=True)
    with np.errstate(all="ignore"):
        results += [(gf.bias_gelu(x, plain[0]), gf.bias_gelu(plain, plain[0])),
                    (gf.gelu_backward(x, x), gf.gelu_backward(plain, plain)),
                    (gf.geglu_backward(plain[:, :2], x), gf.geglu_backward(plain[:, :2], plain))]  # fmt: skip
    for found, want in results:
        assert type(found) is xr.DataArray
        assert found.dims == x.dims
        assert found.coords.equals(x.coords)
        same_bits(found.to_numpy(), want)
    # The halves of the last axis have other labels: the value's are kept.
    with np.errstate(all="ignore"):
        for gate, part in (("second", x[:, :2]), ("first", x[:, 2:])):
            y = gf.geglu(x, gate=gate)
            assert y.coords.equals(part.coords)
            same_bits(y.to_numpy(), gf.geglu(plain, gate=gate))
