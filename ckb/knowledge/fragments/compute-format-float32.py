# ---
# contract: compute-format
# title: float32 activations and cache
# applies_to: workload.dtype == 'float32'
# ---
SOURCES.append(r"""
typedef float kv_t;

static inline float rounded(float x) { return x; }
static inline vf load(const kv_t* p) { return *(const vf*)p; }
static inline void store(kv_t* p, float x) { *p = x; }
""")
