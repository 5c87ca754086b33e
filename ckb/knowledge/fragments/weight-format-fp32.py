# ---
# contract: weight-format
# title: float32 weights as they are
# applies_to: model.weights == 'fp32' and workload.dtype == 'float32'
# ---
import torch

PACKED_DTYPE = torch.float32
SOURCES.append(r"""
typedef float weight_t;

static inline float weight(const weight_t* w) { return *w; }

// 2 * LANES weights in their own order.
static inline void weights(const weight_t* w, vf& first, vf& second) {
    first = *(const vf*)w;
    second = *(const vf*)(w + LANES);
}

// The order of x that weights() delivers is x's own.
static inline void arrange(const float* x, long n, float* out) { memcpy(out, x, n * sizeof(float)); }
""")
