# ---
# contract: cpp-vectors
# title: Dimensions and GCC vectors
# parameters:
#   LANES: [8, 16]
# parameter_requires: {LANES=16: "'avx512f' in platform.isa"}
# constants: [LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, NORM_EPS, THREADS]
# affects: [linear, head, attention]
# ---
SOURCES.append(f"""
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <vector>

constexpr long LAYERS = {LAYERS}, HIDDEN = {HIDDEN}, INTERMEDIATE = {INTERMEDIATE}, VOCAB = {VOCAB};
constexpr long HEADS = {HEADS}, KV_HEADS = {KV_HEADS}, HEAD_DIM = {HEAD_DIM};
constexpr long THREADS = {THREADS}, LANES = {LANES};
constexpr float NORM_EPS = {NORM_EPS}f;

typedef float vf __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * LANES), aligned(2), may_alias));
typedef uint16_t vh __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef float half __attribute__((vector_size(2 * LANES), may_alias));

static inline float total(vf v) {{
    const half h = ((half*)&v)[0] + ((half*)&v)[1];
    float sum = 0;
    for (long i = 0; i < LANES / 4; ++i) sum += h[i] + h[i + LANES / 4];
    return sum;
}}

// e^x to 2e-7, in a form that compilers turn into vector code.
static inline float exponential(float x) {{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    for (float c : {{1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f}}) p = p * r + c;
    return (p * r * r + r + 1.0f) * __builtin_bit_cast(float, ((int32_t)n + 127) << 23);
}}
""")
