"""The stated bounds (gelu_fast.bounds), on every instruction set of this CPU."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest
import reference as ref

import gelu_fast as gf
from gelu_fast import bounds
from gelu_fast.accuracy import functions, points, sweep

NINE = list(functions.FUNCTIONS.values())
FORMS = ("none", "tanh", "quick")
ISAS = functions.available_isas()
each_function = pytest.mark.parametrize("function", NINE, ids=lambda f: f.name)
each_form = pytest.mark.parametrize("form", FORMS)
each_float = pytest.mark.parametrize("dtype", ["float32", "float64"])
LAST = {"float32": {"none": 14.7, "tanh": 11.0, "quick": 64.0}, "float64": {"none": 38.9, "tanh": 22.0, "quick": 443.0}}

# The worst float64 (and float32) inputs that full sweeps have found, at any time and with any tables.
WORST = {
    "float64": {
        "gelu": [
            -1.4092816831995498, -1.4079253562253635, -37.630096709384866, 0.00047527884716095026,
            0.020499999999999973,
        ],
        "gelu_grad": [
            -0.7168416889170605, -0.7496965651755666, -0.7170291811940744, -0.7517915246925211,
            -0.7517915415060158, -0.7517915246914735, -0.7517915246893694,
        ],
        "gelu_grad2": [
            1.3961846881661073, 1.414213545806213, 1.4118773406542615, 1.4142156726784023,
            1.4142135624075354, -1.4141951873396188, -1.4141952383060747,
        ],
        "gelu_tanh": [
            -1.3783593266855685, -0.003894861555156843, -21.18196129005088, 0.013906695791549484,
            0.02049999999999996,
        ],
        "gelu_tanh_grad": [
            -0.7697923675720901, -0.7525300518995574, -0.7524614220750969, -0.75246250555752,
            -1.7193432289254504, -0.7524619729715226, -0.7524614177523248,
        ],
        "gelu_tanh_grad2": [
            1.3998551029334945, 1.4185051477097113, 1.4185040088083274, 1.4185224188341257,
            1.4185086643455747, -1.4190985119896056, -1.4182135327529624,
        ],
        "gelu_quick": [
            -20.975715732247092, -0.015577575717792853, -420.0693250563314, 0.01353836417109777,
            -20.56438500536595,
        ],
        "gelu_quick_grad": [
            -209.52269515424797, -0.7511542937943697, -420.11797547641095, -370.8035426504269,
            -100.76133421473331, -0.7511542653852415, -0.7511542560659873,
        ],
        "gelu_quick_grad2": [
            409.48984481533734, 1.4096731595788567, 420.3999476282933, 1.3954146090422228,
            1.4097281591113715, -1.409728580587418, -1.4097279128157656,
        ],
    },
    "float32": {
        "gelu": [
            -0.333691031, -0.649669468, -13.1895313, 0.0302798618, -0.000121279547, -0.606527567,
            -5.47723436, -0.606527567,
        ],
        "gelu_grad": [
            -0.922113836, -0.74307704, -13.342617, -11.9772091, -1.13697207, -0.752918184, -0.756328881,
            -0.734057367, -4.3678627,
        ],
        "gelu_grad2": [
            1.80905724, 1.41641927, 13.5600138, 1.42365539, 1.17537034, -1.41305637, -1.39861047,
            -4.18451595, -11.6423531,
        ],
        "gelu_tanh": [
            -0.639259934, -2.28576398, -10.1054153, -0.000121353922, -0.628691375, -0.0320386365,
            -6.4686408, -0.631323934,
        ],
        "gelu_tanh_grad": [
            -7.11558247, -5.38487434, -0.767813206, -9.06181335, -0.521726966, -0.747986495, -0.743486583,
            -0.622796655, -2.59735465,
        ],
        "gelu_tanh_grad2": [
            6.94545794, 6.94620705, 10.3683386, 1.41898203, 1.17716849, -1.42794573, -1.42810345,
            3.5342476, 5.737859,
        ],
        "gelu_quick": [
            -49.5349846, -53.678524, 0.643135488, -0.614997566,
            -12.4817371, -52.8496284,
        ],
        "gelu_quick_grad": [
            -51.1082344, -45.8043213, 0.250683218, -53.9943199, -0.250765532, -0.761801422, -0.761780322,
            -15.788475, -0.251060098,
        ],
        "gelu_quick_grad2": [
            47.4251213, 1.40276182, 54.343708, 1.40300071, 30.3167362, -1.42464089, -1.42476165,
            1.40881515, -18.1747818,
        ],
    },
}  # fmt: skip


def special_points(function, dtype):
    """A few hundred: everywhere, the tail to its end, both sides of the root, the worst known."""
    rng = np.random.default_rng(11)
    last = LAST[dtype][function.form]
    tiny = -140 if dtype == "float32" else -1060
    parts = [
        rng.uniform(-last, last, 80), rng.uniform(-3, 3, 80), -last * rng.uniform(0.97, 1, 40),
        rng.choice([-1, 1], 60) * 2.0 ** rng.uniform(tiny, 0, 60), np.array(WORST[dtype][function.name]),
        np.array([0.0, 5e-324, 1000.0, -1000.0, -4, -5, -5.5, -6, -8, -10]),
    ]  # fmt: skip
    if function.order:
        r = function.root
        distance = rng.choice([-1, 1], 60) * 2.0 ** rng.uniform(-52, -5, 60)
        parts += [r * (1 + distance), np.array([r])]
    x = np.concatenate(parts).astype(dtype)
    return np.unique(np.concatenate([x, -x]))


@cache
def expected(name, dtype):
    f = functions.FUNCTIONS[name]
    x = special_points(f, dtype)
    return x, [ref.reference(a, f.form, f.order) for a in x.tolist()]


@each_function
@each_float
def test_against_mpmath(function, dtype, isa):
    x, want = expected(function.name, dtype)
    bound = bounds.ULP[function.kind, dtype]
    errors = [ref.ulp_error(y, w, dtype) for y, w in zip(function.ufunc(x).tolist(), want, strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] <= bound, (x[worst], errors[worst])


@each_form
@each_float
def test_backward_against_mpmath(form, dtype, isa):
    f = next(f for f in NINE if (f.form, f.order) == (form, 1))
    x, _ = expected(f.name, dtype)
    dy = sweep.dy_sample(x, seed=4)
    dy[::5] = 1
    smallest = 2.0 ** ref.FORMATS[dtype][1]
    for a, b, y in zip(x.tolist(), dy.tolist(), f.backward(dy, x).tolist(), strict=True):
        want = ref.backward(b, a, form)
        # bounds.py: where the derivative is subnormal its own last place counts, times dy.
        unit = max(1.0, float(abs(b) * smallest / ref.ulp(want, dtype)))
        assert ref.ulp_error(y, want, dtype) / unit <= bounds.ULP["gelu_backward", dtype], (a, b)


@each_function
@pytest.mark.parametrize(("dtype", "count"), [("float32", 1 << 22), ("float64", 1 << 20)])
def test_stratified(function, dtype, count):
    x = points.sample(function, dtype, count)
    assert x.size >= count
    for isa, found in sweep.sweep(function, x, ISAS).items():
        assert found.count == x.size
        assert found.max.ulp <= bounds.ULP[function.kind, dtype], (isa, found.worst)


@each_form
@each_float
def test_backward_stratified(form, dtype):
    f = next(f for f in NINE if (f.form, f.order) == (form, 1))
    x = points.sample(f, dtype, 1 << 18, seed=1)
    x = x[np.isfinite(x)]
    for isa, found in sweep.sweep_backward(f, sweep.dy_sample(x), x, ISAS).items():
        assert found.max.ulp <= bounds.ULP["gelu_backward", dtype], (isa, found.worst)


@each_function
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_16_bit_input(function, dtype):
    x = sweep.all_16_bit(dtype)
    for isa, wrong in sweep.misrounded(function, x, ISAS).items():
        assert wrong.inputs.size <= bounds.MISROUNDED[function.kind, np.dtype(dtype).name], (isa, wrong.inputs)
        assert wrong.grave.size == 0, (isa, wrong.grave)


@each_form
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_backward_is_float32_rounded_once(form, dtype, isa):
    with np.errstate(invalid="ignore", over="ignore"):  # ml_dtypes warns in its own casts
        x = sweep.all_16_bit(dtype)
        dy = np.roll(x, 4321)
        want = gf.gelu_backward(dy.astype(np.float32), x.astype(np.float32), form).astype(dtype)
        got = gf.gelu_backward(dy, x, form)
    assert got.dtype == dtype
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


# -- cases 1 to 4 of the bug reports -----------------------------------------------------------------------------------

@pytest.mark.case(1)
@each_form
@each_float
def test_case_1_tail(form, dtype, isa):
    x = np.array([-4, -5, -5.5, -6, -8, -10], dtype)
    for a, y in zip(x.tolist(), gf.gelu(x, form).tolist(), strict=True):
        assert ref.ulp_error(y, ref.reference(a, form, 0), dtype) <= bounds.ULP["gelu", dtype]
    if form == "none":
        np.testing.assert_allclose(gf.gelu(x)[[2, 3, 5]], [-1.0444e-7, -5.9195e-9, -7.620e-23], rtol=1e-4)


@pytest.mark.case(2)
@each_form
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 33])
def test_case_2_non_finite(form, dtype, n, isa):
    limits = {np.nan: (np.nan,) * 3, np.inf: (np.inf, 1, 0), -np.inf: (-0.0, 0, 0)}
    with np.errstate(all="raise"):
        for position in {0, n // 2, n - 1}:
            for value, want in limits.items():
                x = np.full(n, -0.5, dtype)
                plain = [f(x, form) for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2)]
                x[position] = value
                got = [f(x, form) for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2)]
                got += [*gf.gelu_with_grad(x, form), gf.gelu_backward(np.ones(n, dtype), x, form)]
                limits_of, same = (*want, *want[:2], want[1]), (*plain, *plain[:2], plain[1])
                for y, limit, before in zip(got, limits_of, same, strict=True):
                    np.testing.assert_array_equal(float(y[position]), limit)
                    rest = np.arange(n) != position
                    np.testing.assert_array_equal(y[rest].view("u1"), before[rest].view("u1"))
                if value == -np.inf:
                    assert np.signbit(float(got[0][position]))


@pytest.mark.case(3)
def test_case_3_float16_overflow(isa):
    x = np.array([256, 300, 65504], np.float16)
    for form in FORMS:
        np.testing.assert_array_equal(gf.gelu_grad(x, form), np.ones(3, np.float16))
        np.testing.assert_array_equal(gf.gelu_grad2(x, form), np.zeros(3, np.float16))
        np.testing.assert_array_equal(gf.gelu(x, form), x)


@pytest.mark.case(4)
@each_form
def test_case_4_exp_overflow(form, isa):
    with np.errstate(all="raise"):
        for dtype in (np.float32, np.float64):
            x = np.array([-13.24, -1e4, -np.finfo(dtype).max, np.finfo(dtype).max], dtype)
            for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2):
                y = f(x, form)
                assert np.isfinite(y).all()
                assert (np.abs(y[:3]) < 1e-7).all()


# -- shape -------------------------------------------------------------------------------------------------------------

def ordered(function, dtype):
    """Sorted: a stratified sample, and runs of neighbouring numbers."""
    x = points.sample(function, dtype, 1 << 20, seed=2)
    x = x[np.isfinite(x)]
    runs = x[:: x.size // 500]
    bits = np.dtype(f"i{x.itemsize}")
    near = (runs.view(bits)[:, None] + np.arange(64, dtype=bits)).view(x.dtype).ravel()
    return np.unique(np.concatenate([x, near[np.isfinite(near)]]))


@each_form
@each_float
def test_forward_falls_to_its_minimum_and_rises(form, dtype, isa):
    f = next(f for f in NINE if (f.form, f.order) == (form, 0))
    minimum = next(g for g in NINE if (g.form, g.order) == (form, 1)).root
    x = ordered(f, dtype)
    y = f.ufunc(x)
    left, right = y[x < minimum], y[x > minimum]
    assert (left <= np.minimum.accumulate(left) + 2 * np.spacing(np.abs(left))).all()
    assert (right >= np.maximum.accumulate(right) - 2 * np.spacing(np.abs(right))).all()


@each_form
@each_float
def test_sign_of_the_gradient(form, dtype, isa):
    f = next(f for f in NINE if (f.form, f.order) == (form, 1))
    x = ordered(f, dtype)
    y = f.ufunc(x)
    assert (y[x > f.root + bounds.NEAR_ROOT] > 0).all()
    left = x < f.root - bounds.NEAR_ROOT
    assert (y[left] <= 0).all()
    assert (y[left & (x > -0.9 * LAST[dtype][form])] < 0).all()
