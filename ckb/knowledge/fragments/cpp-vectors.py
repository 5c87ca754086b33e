# ---
# contract: cpp-vectors
# title: Dimensions and GCC vectors
# constants: [LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, NORM_EPS, THREADS]
# parameters:
#   LANES: [8, 16]
# parameter_requires:
#   LANES=16: "'avx512f' in platform.isa"
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

static inline float total(vf v) {{
    float sum = 0;
    for (long i = 0; i < LANES; ++i) sum += v[i];
    return sum;
}}
""")
