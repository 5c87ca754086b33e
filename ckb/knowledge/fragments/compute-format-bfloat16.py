# ---
# contract: compute-format
# title: bfloat16 activations and cache, float32 arithmetic
# applies_to: workload.dtype == 'bfloat16'
# ---
SOURCES.append(r"""
typedef uint16_t kv_t;

// Round to the nearest bfloat16, ties to even, and back.
static inline float rounded(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    return __builtin_bit_cast(float, (bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u);
}
static inline vf load(const kv_t* p) { return (vf)(__builtin_convertvector(*(const vh*)p, vu) << 16); }
static inline void store(kv_t* p, float x) { *p = __builtin_bit_cast(uint32_t, x) >> 16; }
""")
