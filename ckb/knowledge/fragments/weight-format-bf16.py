# ---
# contract: weight-format
# title: Two bfloat16 weights in each 32-bit lane
# applies_to: model.weights == 'bf16' or (model.weights == 'fp32' and workload.dtype == 'bfloat16')
# ---
import torch

PACKED_DTYPE = torch.bfloat16
SOURCES.append(r"""
typedef uint16_t weight_t;

static inline float weight(const weight_t* w) { return __builtin_bit_cast(float, (uint32_t)*w << 16); }

// 2 * LANES weights, upcast exactly: the even elements and the odd elements.
static inline void weights(const weight_t* w, vf& even, vf& odd) {
    const vu pairs = *(const vu*)w;
    even = (vf)(pairs << 16);
    odd = (vf)(pairs & 0xffff0000u);
}

// Bring x into the order that weights() delivers, block by block.
static inline void arrange(const float* x, long n, float* out) {
    const long whole = n / (2 * LANES) * (2 * LANES);
    for (long block = 0; block < whole; block += 2 * LANES)
        for (long i = 0; i < 2 * LANES; ++i) out[block + i % 2 * LANES + i / 2] = x[block + i];
    memcpy(out + whole, x + whole, (n - whole) * sizeof(float));
}
""")
