# ---
# contract: compute-format
# title: bfloat16 activations and cache, float32 arithmetic
# applies_to: workload.dtype == 'bfloat16'
# ---
SOURCES.append(r"""
typedef uint16_t kv_t;

// Round to the nearest bfloat16, ties to even, and back.
static inline float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static inline vf load(const kv_t* p) { return (vf)(__builtin_convertvector(*(const vh*)p, vu) << 16); }

static inline void store(kv_t* p, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    *p = bits >> 16;  // x is rounded already
}
""")
