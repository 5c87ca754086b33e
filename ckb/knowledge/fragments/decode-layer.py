# ---
# contract: decode-layer
# title: Heads are rotated as they are
# applies_to: not model.qk_norm
# ---
LAYER_PARTS = ("input_norm", "post_norm", "q", "k", "v", "o", "gate", "up", "down")
SOURCES.append(r"""
struct Layer {
    const float *input_norm, *post_norm;
    const weight_t *q, *k, *v, *o, *gate, *up, *down;
    static constexpr const float *q_norm = nullptr, *k_norm = nullptr;
};

static inline void ready(const float*, float* head, const float* cosine, const float* sine) {
    rotate(head, cosine, sine);
}
""")
