# ---
# contract: decode-vectors
# title: Norm, rotation and gate of one position
# ---
SOURCES.append(r"""
// x scaled to a root mean square of 1, rounded, times w, rounded. `out` may be x.
static inline void normalise(const float* x, const float* w, long n, float* out) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(sum / n + NORM_EPS);
#pragma omp simd
    for (long i = 0; i < n; ++i) out[i] = rounded(w[i] * rounded(x[i] * scale));
}

// One head, its first half paired with its second.
static inline void rotate(float* head, const float* cosine, const float* sine) {
    constexpr long HALF = HEAD_DIM / 2;
#pragma omp simd
    for (long d = 0; d < HALF; ++d) {
        const float a = head[d], b = head[d + HALF];
        head[d] = rounded(rounded(a * cosine[d]) - rounded(b * sine[d]));
        head[d + HALF] = rounded(rounded(b * cosine[d]) + rounded(a * sine[d]));
    }
}

// gate[i] = silu(gate[i]) * up[i]
static inline void gated(float* gate, const float* up, long n) {
#pragma omp simd
    for (long i = 0; i < n; ++i) gate[i] = rounded(rounded(gate[i] / (1.0f + exponential(-gate[i]))) * up[i]);
}
""")
