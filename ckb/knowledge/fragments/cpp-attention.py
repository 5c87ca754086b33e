# ---
# contract: cpp-attention
# title: Scores, softmax and sums of one head
# applies_to: model.head_dim in [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256]
# affects: [attention]
# ---
SOURCES.append(r"""
// One query head over `length` cached positions; `scores` has room for all of them.
static inline void attend(const float* q, const kv_t* keys, const kv_t* values, long token_stride, long length,
                          float* scores, float* out) {
    constexpr long PARTS = HEAD_DIM / LANES;
    const float scale = 1.0f / sqrtf((float)HEAD_DIM);
    float top = -INFINITY, sum = 0;
    for (long t = 0; t < length; ++t) {
        vf products = {};
        for (long p = 0; p < PARTS; ++p)
            products += *(const vf*)(q + p * LANES) * load(keys + t * token_stride + p * LANES);
        scores[t] = total(products) * scale;
        top = scores[t] > top ? scores[t] : top;
    }
#pragma omp simd reduction(+ : sum)
    for (long t = 0; t < length; ++t) sum += scores[t] = exponential(scores[t] - top);
    vf mixed[PARTS] = {};
    for (long t = 0; t < length; ++t)
        for (long p = 0; p < PARTS; ++p) mixed[p] += scores[t] * load(values + t * token_stride + p * LANES);
    for (long d = 0; d < HEAD_DIM; ++d) out[d] = rounded(mixed[d / LANES][d % LANES] / sum);
}
""")
