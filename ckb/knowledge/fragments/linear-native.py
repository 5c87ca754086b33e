# ---
# contract: linear
# title: C++ product of stored weights and one vector; float32 blocks for several
# applies_to: choice.linear == 'native' and platform.compiler != None
# constants: [DTYPE]
# parameters:
#   ROWS: [1, 2, 4, 8]
#   SPREAD: [0, 1]
#   PREFETCH: [0, 512, 1024, 2048]
#   BLOCK: [1024, 256, 4096]
# affects: [linear, head, prefill]
# ---
import torch

SOURCES.append(f"constexpr long ROWS = {ROWS}, SPREAD = {SPREAD}, PREFETCH = {PREFETCH};\n")
SOURCES.append(r"""
// R dot products of length k: y[r] = w[r * stride ..] . x, x in the order of weights().
template <long R> static inline void dots(const weight_t* w, long stride, const float* x, long k, float* y) {
    vf first[R] = {}, second[R] = {};
    long i = 0;
    for (; i + 2 * LANES <= k; i += 2 * LANES) {
        const vf x0 = *(const vf*)(x + i), x1 = *(const vf*)(x + i + LANES);
        for (long r = 0; r < R; ++r) {
            vf w0, w1;
            weights(w + r * stride + i, w0, w1);
            if (PREFETCH) __builtin_prefetch((const char*)(w + r * stride + i) + PREFETCH);
            first[r] += w0 * x0;
            second[r] += w1 * x1;
        }
    }
    for (long r = 0; r < R; ++r) {
        y[r] = total(first[r] + second[r]);
        for (long j = i; j < k; ++j) y[r] += weight(w + r * stride + j) * x[j];
    }
}

// Rows `from` to `to` of w [., k] times x; ROWS of them at once, neighbours or spread over the whole range.
template <typename Sink>
static inline void rows(const weight_t* w, const float* x, long k, long from, long to, Sink sink) {
    const long groups = (to - from) / ROWS, apart = SPREAD ? groups : 1, step = SPREAD ? 1 : ROWS;
    float y[ROWS];
    for (long g = 0; g < groups; ++g) {
        const long n = from + g * step;
        dots<ROWS>(w + n * k, apart * k, x, k, y);
        for (long r = 0; r < ROWS; ++r) sink(n + r * apart, y[r]);
    }
    for (long n = from + groups * ROWS; n < to; ++n) {
        dots<1>(w + n * k, k, x, k, y);
        sink(n, y[0]);
    }
}

extern "C" void matvec(const weight_t* w, const float* x, float* y, long n, long k) {
    std::vector<float> ordered(k);
    arrange(x, k, ordered.data());
#pragma omp parallel for num_threads(THREADS) schedule(static, 1)
    for (long t = 0; t < THREADS; ++t)
        rows(w, ordered.data(), k, n * t / THREADS, n * (t + 1) / THREADS, [&](long i, float v) { y[i] = v; });
}
""")


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight [N, K] as the checkpoint stores it, in memory of its own: upcasting in registers is exact."""
    return weight.to(PACKED_DTYPE, copy=True)


def linear(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x [M, K] times the packed weight [N, K] transposed: [M, N], summed in float32."""
    x = x.float().contiguous()
    y = torch.empty(len(x), len(packed))
    if len(x) == 1:
        call("matvec", packed, x, y, *packed.shape)
    else:
        for block, out in zip(packed.split(BLOCK), y.split(BLOCK, dim=1), strict=True):
            out.copy_(x @ block.float().T)
    return y.to(DTYPE)
