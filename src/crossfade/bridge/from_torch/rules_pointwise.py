"""Operations of each element, in JAX."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from .table import rule, rules
from .values import Number, Value, as_float, is_float, promoted, ranked

Unary = Callable[[Array], Array]


@jax.custom_jvp
def with_slope(x: Array, value: Array, slope: Array) -> Array:
    """The value of a function of x whose derivative torch computes by another formula."""
    return value


@with_slope.defjvp
def _with_slope_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    return primals[1], primals[2] * tangents[0]


def _of_floats(function: Unary) -> Unary:
    return lambda x: function(as_float(x))


for _name, _function in {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "deg2rad": jnp.deg2rad,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "lgamma": lax.lgamma,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "rad2deg": jnp.rad2deg,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "sinc": jnp.sinc,
    "sinh": jnp.sinh,
    "special_entr": jax.scipy.special.entr,
    "special_erfcx": lambda x: jnp.exp(x * x) * lax.erfc(x),
    "special_log_ndtr": jax.scipy.special.log_ndtr,
    "special_ndtri": jax.scipy.special.ndtri,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}.items():
    rules(**{_name: _of_floats(_function)})

rules(
    bitwise_not=jnp.bitwise_not,
    ceil=jnp.ceil,
    floor=jnp.floor,
    frac=lambda x: x - jnp.trunc(x),
    isfinite=jnp.isfinite,
    isinf=jnp.isinf,
    isnan=jnp.isnan,
    isneginf=jnp.isneginf,
    isposinf=jnp.isposinf,
    logical_not=jnp.logical_not,
    neg=jnp.negative,
    positive=lambda x: x,
    sgn=jnp.sign,
    sign=jnp.sign,
    signbit=jnp.signbit,
    square=jnp.square,
    trunc=jnp.trunc,
)


@rule("abs")
def absolute(x: Array) -> Array:
    """|x|, whose derivative at 0 is 0."""
    if jnp.iscomplexobj(x):
        return jnp.abs(x)
    return x * lax.stop_gradient(jnp.sign(x)) if x.dtype != bool else x


@rule("round")
def rounded(x: Array, *, decimals: int = 0) -> Array:
    return jnp.round(x, decimals)


@rule("logit")
def logit(x: Array, eps: Number | None = None) -> Array:
    x = as_float(x) if eps is None else clamp(as_float(x), eps, 1 - eps)
    return jnp.log(x / (1 - x))


@rule("nan_to_num")
def nan_to_num(
    x: Array, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None
) -> Array:
    return jnp.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf) if is_float(x) else x


@rule("digamma")
def digamma(x: Array) -> Array:
    return with_slope(x, jax.scipy.special.digamma(x), trigamma(x))


@rule("polygamma")
def polygamma(n: int, x: Array) -> Array:
    return trigamma(x) if n == 1 else jax.scipy.special.polygamma(n, x)


def trigamma(x: Array) -> Array:
    """By six steps of recurrence and four terms of the asymptotic series, which is what torch computes."""
    mirrored = x < 0.5
    z = jnp.where(mirrored, 1 - x, x)
    total = jnp.where(mirrored, -jnp.square(jnp.pi / jnp.sin(jnp.pi * jnp.where(mirrored, x, 0.5))), 0.0)
    for _ in range(6):
        total, z = total + 1 / (z * z), z + 1
    inverse = 1 / (z * z)
    total += (1 + 1 / (2 * z) + inverse * (1 / 6 - inverse * (1 / 30 - inverse / 42))) / z
    return jnp.where(mirrored, -total, total)


@rule("add")
def add(x: Value, y: Value, *, alpha: Number = 1) -> Array:
    """x + alpha y; of truth values, their disjunction."""
    x, y = promoted(x, y)
    if x.dtype == bool:
        return x | y
    return x + y if alpha == 1 else x + alpha * y


@rule("sub", "subtract")
def sub(x: Value, y: Value, *, alpha: Number = 1) -> Array:
    x, y = promoted(x, y)
    return x - y if alpha == 1 else x - alpha * y


@rule("rsub")
def rsub(x: Array, y: Value, alpha: Number = 1) -> Array:
    return sub(y, x, alpha=alpha)


@rule("mul")
def mul(x: Value, y: Value) -> Array:
    x, y = promoted(x, y)
    return x & y if x.dtype == bool else x * y


@rule("div")
def div(x: Value, y: Value, *, rounding_mode: str | None = None) -> Array:
    x, y = promoted(x, y)
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode == "trunc":
        return jnp.trunc(x / y) if is_float(x) else lax.div(*jnp.broadcast_arrays(x, y))
    return as_float(x) / as_float(y)


@rule("floor_divide")
def floor_divide(x: Value, y: Value) -> Array:
    return jnp.floor_divide(*promoted(x, y))


@rule("remainder")
def remainder(x: Value, y: Value) -> Array:
    """x - floor(x / y) y, with the sign of y."""
    return jnp.remainder(*promoted(x, y))


@rule("fmod")
def fmod(x: Value, y: Value) -> Array:
    """The remainder with the sign of x."""
    x, y = promoted(x, y)
    return jnp.fmod(x, y)


@rule("pow")
def power(x: Value, y: Value) -> Array:
    if isinstance(y, bool | int | float) and float(y).is_integer() and abs(y) < 2**31 and isinstance(x, Array):
        x, _ = promoted(x, y)
        return lax.integer_pow(x, int(y)) if y >= 0 or is_float(x) else jnp.power(x, int(y))
    x, y = promoted(x, y)
    return jnp.power(x, y)


for _name, _binary in {
    "atan2": jnp.arctan2,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_left_shift": jnp.left_shift,
    "bitwise_right_shift": jnp.right_shift,
    "__lshift__": jnp.left_shift,
    "__rshift__": jnp.right_shift,
    "copysign": jnp.copysign,
    "eq": jnp.equal,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "heaviside": jnp.heaviside,
    "hypot": jnp.hypot,
    "le": jnp.less_equal,
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
    "lt": jnp.less,
    "max.other": jnp.maximum,
    "maximum": jnp.maximum,
    "min.other": jnp.minimum,
    "minimum": jnp.minimum,
    "ne": jnp.not_equal,
    "nextafter": jnp.nextafter,
    "special_xlog1py": jax.scipy.special.xlog1py,
    "special_zeta": jax.scipy.special.zeta,
    "xlogy": jax.scipy.special.xlogy,
}.items():
    rule(_name)(lambda x, y, _binary=_binary: _binary(*promoted(x, y)))

for _name, _logical in {
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}.items():
    rule(_name)(lambda x, y, _logical=_logical: _logical(*ranked(x != 0, y != 0)))


@rule("clamp")
def clamp(x: Array, low: Value | None = None, high: Value | None = None) -> Array:
    """min(max(x, low), high), whose derivative is 1 on the closed interval; that of a bound is 1 beyond it."""
    if low is not None:
        x, bound = promoted(x, low)
        x = jnp.where(x < bound, bound, x)
    if high is not None:
        x, bound = promoted(x, high)
        x = jnp.where(x > bound, bound, x)
    return x


@rule("clamp_min")
def clamp_min(x: Array, low: Value) -> Array:
    return clamp(x, low)


@rule("clamp_max")
def clamp_max(x: Array, high: Value) -> Array:
    return clamp(x, None, high)


@rule("where")
def where(condition: Array, x: Value, y: Value) -> Array:
    x, y = promoted(x, y)
    return jnp.where(*ranked(condition.astype(bool), x, y))


@rule("masked_fill")
def masked_fill(x: Array, mask: Array, value: Value) -> Array:
    mask, x, value = ranked(mask, x, jnp.asarray(value, x.dtype))
    return jnp.where(mask, value, x)


@rule("lerp")
def lerp(x: Array, end: Array, weight: Value) -> Array:
    """x + weight (end - x), from the nearer end as torch does."""
    x, end, weight = promoted(x, end, weight)
    return jnp.where(jnp.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))


@rule("addcmul")
def addcmul(x: Array, y: Array, z: Array, *, value: Number = 1) -> Array:
    x, y, z = promoted(x, y, z)
    return x + value * y * z


@rule("addcdiv")
def addcdiv(x: Array, y: Array, z: Array, *, value: Number = 1) -> Array:
    x, y, z = promoted(x, y, z)
    return x + value * y / z


@rule("mvlgamma")
def mvlgamma(x: Array, p: int) -> Array:
    terms = x[..., None] - jnp.arange(p, dtype=x.dtype).reshape((1,) * x.ndim + (p,)) / 2
    return lax.lgamma(terms).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
