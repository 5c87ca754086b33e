# ---
# contract: decode-layer
# title: Heads are normalised, then rotated
# applies_to: model.qk_norm
# ---
LAYER_PARTS = ("input_norm", "post_norm", "q_norm", "k_norm", "q", "k", "v", "o", "gate", "up", "down")
SOURCES.append(r"""
struct Layer {
    const float *input_norm, *post_norm, *q_norm, *k_norm;
    const weight_t *q, *k, *v, *o, *gate, *up, *down;
};

static inline void ready(const float* norm, float* head, const float* cosine, const float* sine) {
    normalise(head, norm, HEAD_DIM, head);
    rotate(head, cosine, sine);
}
""")
