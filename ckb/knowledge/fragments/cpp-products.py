# ---
# contract: cpp-products
# title: Several streams of rows times a few vectors
# parameters:
#   STREAMS: [1, 2, 4, 8]
#   PREFETCH: [0, 512, 1024, 2048]
# affects: [linear, head]
# ---
SOURCES.append(f"constexpr long STREAMS = {STREAMS}, PREFETCH = {PREFETCH};\n")
SOURCES.append(r"""
// R rows of w, `apart` from each other, times C vectors of length k in the order of weights().
template <long R, long C>
static inline void dots(const weight_t* w, long apart, const float* x, long k, float y[R][C]) {
    vf first[R][C] = {}, second[R][C] = {};
    long i = 0;
    for (; i + 2 * LANES <= k; i += 2 * LANES)
#pragma GCC unroll 8
        for (long r = 0; r < R; ++r) {
            vf w0, w1;
            weights(w + r * apart + i, w0, w1);
            if (PREFETCH) __builtin_prefetch((const char*)(w + r * apart + i) + PREFETCH);
#pragma GCC unroll 8
            for (long c = 0; c < C; ++c) {
                first[r][c] += w0 * *(const vf*)(x + c * k + i);
                second[r][c] += w1 * *(const vf*)(x + c * k + i + LANES);
            }
        }
#pragma GCC unroll 8
    for (long r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (long c = 0; c < C; ++c) {
            y[r][c] = total(first[r][c] + second[r][c]);
            for (long j = i; j < k; ++j) y[r][c] += weight(w + r * apart + j) * x[c * k + j];
        }
}

// Rows `from` to `to` of w [., k] times C vectors: the range in R parts, one row of each part at a time.
template <long C, typename Sink>
static __attribute__((noinline)) void rows(const weight_t* w, const float* x, long k, long from, long to, Sink sink) {
    constexpr long R = STREAMS * C <= 16 ? STREAMS : 16 / C;  // more sums than that do not fit into registers
    const long part = (to - from) / R;
    float y[R][C];
    for (long n = from; n < from + part; ++n) {
        dots<R, C>(w + n * k, part * k, x, k, y);
        for (long r = 0; r < R; ++r)
            for (long c = 0; c < C; ++c) sink(n + r * part, c, y[r][c]);
    }
    for (long n = from + part * R; n < to; ++n) {
        dots<1, C>(w + n * k, k, x, k, y);
        for (long c = 0; c < C; ++c) sink(n, c, y[0][c]);
    }
}
""")
