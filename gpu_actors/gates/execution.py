"""Stage tests of the primitives and the cache, against the float64 formulas. Inputs are drawn for each verdict."""

import numpy as np

from gpu_actors.gates import formulas
from gpu_actors.gates.base import Array, Finding, Gate, Subject, failed, passed
from gpu_actors.gates.compare import ROUNDOFF, Comparison, compare, judged, rms, rounded
from gpu_actors.gates.evidence import Compared, Dtype

BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    # largest error of an element and root mean square of all, in units of u: what one order of summation may differ
    # from another in float32, and what the roundings between the steps of a formula add up to in bfloat16
    "linear": {"float32": (0, 64), "bfloat16": (1.25, 1)},
    "rms_norm": {"float32": (16, 3), "bfloat16": (4, 1.5)},
    "rope": {"float32": (4, 3), "bfloat16": (4, 1.5)},
    "silu_mul": {"float32": (24, 3), "bfloat16": (6, 1.5)},
    "attention": {"float32": (64, 64), "bfloat16": (4, 2)},
}


def bounds(subject: Subject, operator: str) -> tuple[float, float]:
    """Absolute factors: of an element's size, and of the root mean square of what is expected."""
    largest, spread = BOUNDS[operator][subject.facts.workload.dtype]
    return largest * roundoff(subject), spread * roundoff(subject)


def roundoff(subject: Subject) -> float:
    return ROUNDOFF[subject.facts.workload.dtype]


def draw(subject: Subject, rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Normal values that the compute dtype holds exactly."""
    return rounded(rng.normal(scale=scale, size=shape), subject.facts.workload.dtype)


def single(array: Array) -> Array:
    return array.astype(np.float32)


def setup(subject: Subject) -> Finding:
    """Kernels are built and loaded, twice in a row, and compute in the Target's dtype."""
    dtype = subject.call("setup").value("dtype", str)
    wanted = subject.facts.workload.dtype
    if dtype != wanted:
        return failed(f"kernels.DTYPE is {dtype}; the Target computes in {wanted}", dtype=dtype)
    return passed(f"kernels built and loaded twice, DTYPE {dtype}", dtype=dtype)


def linear(subject: Subject) -> Finding:
    """Products with a packed weight, of one row and of several, in every shape that the model has."""
    facts, rng = subject.facts.model, subject.draws("linear")
    largest, spread = bounds(subject, "linear")
    wide, heads = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    shapes = {(facts.hidden, heads), (wide, facts.hidden), (facts.hidden, facts.intermediate), (facts.intermediate, 24)}
    # where the Target computes in bfloat16, float32 weights are rounded when they are packed: these are already
    exact = facts.weights == "fp32" and subject.facts.workload.dtype == "float32"
    done = []
    for k, n in sorted(shapes):
        weight = rounded(rng.normal(scale=k**-0.5, size=(n, k)), "fp32" if exact else "bf16")
        drawn = [draw(subject, rng, m, k) for m in (1, 2, int(rng.integers(3, 40)))]
        arrays = {f"x{i}": single(x) for i, x in enumerate(drawn)}
        reply = subject.call("linear", weight=single(weight), weights=facts.weights, **arrays)
        rows = np.concatenate(drawn)
        cuts = np.cumsum([len(x) for x in drawn])[:-1]
        expected, total = (np.split(y, cuts) for y in (rows @ weight.T, np.abs(rows) @ np.abs(weight).T))
        for i, x in enumerate(drawn):
            # sums are in float32 at least, in any order; what is left is the rounding of the result
            bound = 8 * 2.0**-24 * total[i] + largest * np.abs(expected[i])
            case = f"x [{len(x)}, {k}] by weight [{n}, {k}]"
            done.append(compare(case, reply.array(f"y{i}"), expected[i], bound, spread * rms(expected[i])))
    return judged("linear", done)


def rms_norm(subject: Subject) -> Finding:
    """Rows of usual and large values, and some so small that epsilon decides."""
    facts, rng = subject.facts.model, subject.draws("rms_norm")
    largest, spread = bounds(subject, "rms_norm")
    done = []
    # at the scale of sqrt(eps) a wrong eps changes the result by a factor
    for scale in (1.0, 30.0, float(np.sqrt(facts.norm_eps))):
        for m in (1, int(rng.integers(2, 20))):
            x = draw(subject, rng, m, facts.hidden, scale=scale)
            weight = rounded(1 + draw(subject, rng, facts.hidden, scale=0.2), subject.facts.workload.dtype)
            found = subject.call("rms_norm", x=single(x), weight=single(weight)).array("y")
            expected = formulas.rms_norm(x, weight, facts.norm_eps)
            case = f"x [{m}, {facts.hidden}] of scale {scale:.2g}"
            done.append(compare(case, found, expected, largest * np.abs(expected) + 1e-30, spread * rms(expected)))
    return judged("rms_norm", done)


def rope(subject: Subject) -> Finding:
    """Rotation by position, at the start, in the middle and at the end of the context."""
    facts, rng = subject.facts.model, subject.draws("rope")
    largest, spread = bounds(subject, "rope")
    context, done = subject.facts.workload.max_context, []
    for heads in {facts.heads, facts.kv_heads}:
        for m, start in ((1, 0), (1, context - 1), (7, int(rng.integers(1, context - 7))), (context // 2, 0)):
            x = draw(subject, rng, m, heads, facts.head_dim)
            found = subject.call("rope", x=single(x), start=start).array("y")
            expected = formulas.rope(x, start, facts.rope_theta)
            # a float32 angle of p radians is off by p u: position times frequency, whose own error counts too
            angle = 4 * 2.0**-24 * (start + m)
            half = facts.head_dim // 2
            size = np.abs(x[..., :half]) + np.abs(x[..., half:])
            bound = (largest + angle) * np.concatenate([size, size], axis=-1) + 1e-30
            done.append(compare(f"x [{m}, {heads}, {facts.head_dim}] at {start}", found, expected, bound,
                                (spread + angle) * rms(expected)))  # fmt: skip
    return judged("rope", done)


def silu_mul(subject: Subject) -> Finding:
    """silu of the first half of each row times the second, of usual and large values."""
    facts, rng = subject.facts.model, subject.draws("silu_mul")
    largest, spread = bounds(subject, "silu_mul")
    done = []
    for m in (1, int(rng.integers(2, 12))):
        for scale in (1.0, 6.0):
            x = draw(subject, rng, m, 2 * facts.intermediate, scale=scale)
            found = subject.call("silu_mul", gate_up=single(x)).array("y")
            expected = formulas.silu_mul(x)
            bound = largest * np.abs(expected) + 1e-30
            case = f"gate_up [{m}, {2 * facts.intermediate}] of scale {scale:.0f}"
            done.append(compare(case, found, expected, bound, spread * rms(expected)))
    return judged("silu_mul", done)


def attention(subject: Subject) -> Finding:
    """Lengths and starts of prefill, of chunks and of decoding; views into a longer buffer that holds rubbish."""
    facts, rng = subject.facts.model, subject.draws("attention")
    context = subject.facts.workload.max_context
    middle = int(rng.integers(2, max(3, context // 2)))
    sizes = [(1, 0), (1, middle), (1, context - 1), (2, 1), (5, 0), (7, middle), (min(33, context), 0)]
    return judged("attention", [attend(subject, rng, m, start, facts.heads, facts.kv_heads) for m, start in sizes])


def attend(subject: Subject, rng: np.random.Generator, m: int, start: int, heads: int, kv_heads: int) -> Comparison:
    dim = subject.facts.model.head_dim
    largest, spread = bounds(subject, "attention")
    m = min(m, subject.facts.workload.max_context - start)
    # scores with a standard deviation of 3: sharp enough that a wrong scale, mask or head shows
    q = draw(subject, rng, m, heads, dim, scale=3.0)
    keys, values = (draw(subject, rng, kv_heads, start + m, dim) for _ in range(2))
    arguments = {"q": single(q), "keys": single(keys), "values": single(values)}
    found = subject.call("attention", **arguments, start=start, poison=5).array("y")
    expected, size = formulas.attention(q, keys, values, start)
    # a score is a sum of head_dim products in float32 at least, and the weight that is made of it is off by as much
    scores = 2 * 2.0**-24 * np.repeat(formulas.score_size(q, keys), dim, axis=1)
    bound = (largest + scores) * size + 1e-30
    return compare(f"{m} queries at {start}", found, expected, bound, spread * rms(expected))


def kv_cache(subject: Subject) -> Finding:
    """Chunks equal one append, an overwritten row is the new one, rows beyond the length asked for do not show."""
    facts, rng = subject.facts.model, subject.draws("kv_cache")
    capacity = min(subject.facts.workload.max_context, 48)
    cut = sorted(int(c) for c in rng.choice(np.arange(1, capacity), 3, replace=False))
    last = facts.layers - 1
    spans = list(zip([0, *cut], [*cut, capacity], strict=True))
    appends = [(layer, a, b) for layer in {0, last} for a, b in spans] + [(0, cut[0], cut[1])]
    held = {layer: [np.zeros((capacity, facts.kv_heads, facts.head_dim)) for _ in "kv"] for layer in {0, last}}
    rows: dict[str, Array] = {}
    for i, (layer, a, b) in enumerate(appends):
        for j, name in enumerate("kv"):
            held[layer][j][a:b] = draw(subject, rng, b - a, facts.kv_heads, facts.head_dim)
            rows[f"{name}{i}"] = single(held[layer][j][a:b])
    reads = [(layer, length) for layer in {0, last} for length in (1, cut[1], capacity)]
    reply = subject.call("cache", capacity=capacity, appends=[[x, a] for x, a, _ in appends], reads=reads, **rows)
    done = []
    for i, (layer, length) in enumerate(reads):
        for j, name in enumerate(("keys", "values")):
            expected = held[layer][j][:length].transpose(1, 0, 2)
            case = f"{name} of layer {layer}, length {length}"
            done.append(compare(case, reply.array(f"{name}{i}"), expected, 1e-30, 1e-30))
    finding = judged("KVCache", done)
    least = facts.kv_bytes(capacity, subject.facts.workload.dtype)
    if finding.status == "PASS" and (taken := reply.value("bytes", int)) < least:
        return failed(f"KVCache.bytes is {taken:,}; {capacity} positions take at least {least:,}")
    return finding


def kv_cache_capacity(subject: Subject) -> Finding:
    """Rows beyond the capacity are refused by a ValueError."""
    facts, capacity = subject.facts.model, 8
    row = np.ones((3, facts.kv_heads, facts.head_dim), dtype=np.float32)
    for start in (capacity - 2, capacity):
        appends = {"capacity": capacity, "appends": [[0, start]], "reads": [], "k0": row, "v0": row}
        failure = subject.raised("cache", **appends)
        if failure is None or failure.error_type != "ValueError":
            found = f"raised {failure}" if failure else "returned"
            return failed(f"appending 3 rows at {start} to a cache of {capacity} must raise ValueError; it {found}")
    return passed(f"rows beyond the capacity of {capacity} raise ValueError")


GATES = (
    Gate("setup", "setup", "execution", setup, evidence=Dtype),
    Gate("linear", "linear", "execution", linear, evidence=Compared),
    Gate("rms_norm", "rms-norm", "execution", rms_norm, evidence=Compared),
    Gate("rope", "rope", "execution", rope, evidence=Compared),
    Gate("silu_mul", "silu-mul", "execution", silu_mul, evidence=Compared),
    Gate("attention", "attention", "execution", attention, evidence=Compared),
    Gate("kv_cache", "kv-cache", "execution", kv_cache, evidence=Compared),
    Gate("kv_cache_capacity", "kv-cache", "execution", kv_cache_capacity),
)
