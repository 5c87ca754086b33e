# ---
# contract: decode-program
# title: The whole step in one parallel region, with barriers between the products
# ---
SOURCES.append(r"""
extern "C" void decode(const Layer* layers, const weight_t* embedding, const float* final_norm, const weight_t* head,
                       const float* cosine, const float* sine, kv_t* keys, kv_t* values, long layer_stride,
                       long head_stride, long token_stride, long token, long position, float* logits) {
    constexpr long QUERY = HEADS * HEAD_DIM, CACHED = KV_HEADS * HEAD_DIM;
    constexpr long WIDEST = HIDDEN > QUERY ? HIDDEN : QUERY, GROUP = HEADS / KV_HEADS;
    alignas(64) float hidden[HIDDEN], q[QUERY], k[CACHED], v[CACHED], mixed[QUERY];
    alignas(64) float gate[INTERMEDIATE], up[INTERMEDIATE];
    for (long i = 0; i < HIDDEN; ++i) hidden[i] = rounded(weight(embedding + token * HIDDEN + i));
    cosine += position * HEAD_DIM / 2;
    sine += position * HEAD_DIM / 2;
#pragma omp parallel num_threads(THREADS)
    {
        const long me = omp_get_thread_num(), team = omp_get_num_threads();
        alignas(64) float plain[WIDEST], x[WIDEST > INTERMEDIATE ? WIDEST : INTERMEDIATE];
        std::vector<float> scores(position + 1);
        // This thread's rows of w [n, k] times x, kept in `out` or added to it.
        auto share = [&](const weight_t* w, long n, long k, auto sink) {
            rows<1>(w, x, k, n * me / team, n * (me + 1) / team, sink);
        };
        auto keep = [&](const weight_t* w, long n, long k, float* out) {
            share(w, n, k, [=](long i, long, float y) { out[i] = rounded(y); });
        };
        auto add = [&](const weight_t* w, long n, long k, float* out) {
            share(w, n, k, [=](long i, long, float y) { out[i] = rounded(out[i] + rounded(y)); });
        };
        auto norm = [&](const float* w) {
            normalise(hidden, w, HIDDEN, plain);
            arrange(plain, HIDDEN, x);
        };
        for (long l = 0; l < LAYERS; ++l) {
            const Layer& layer = layers[l];
            kv_t *const layer_keys = keys + l * layer_stride, *const layer_values = values + l * layer_stride;
            norm(layer.input_norm);
            keep(layer.q, QUERY, HIDDEN, q);
            keep(layer.k, CACHED, HIDDEN, k);
            keep(layer.v, CACHED, HIDDEN, v);
#pragma omp barrier
#pragma omp for schedule(static)
            for (long h = 0; h < KV_HEADS; ++h) {
                ready(layer.k_norm, k + h * HEAD_DIM, cosine, sine);
                const long at = h * head_stride + position * token_stride;
                for (long d = 0; d < HEAD_DIM; ++d) {
                    store(layer_keys + at + d, k[h * HEAD_DIM + d]);
                    store(layer_values + at + d, v[h * HEAD_DIM + d]);
                }
            }
#pragma omp for schedule(static)
            for (long h = 0; h < HEADS; ++h) {
                const long from = h / GROUP * head_stride;
                ready(layer.q_norm, q + h * HEAD_DIM, cosine, sine);
                attend(q + h * HEAD_DIM, layer_keys + from, layer_values + from, token_stride, position + 1,
                       scores.data(), mixed + h * HEAD_DIM);
            }
            arrange(mixed, QUERY, x);
            add(layer.o, HIDDEN, QUERY, hidden);
#pragma omp barrier
            norm(layer.post_norm);
            keep(layer.gate, INTERMEDIATE, HIDDEN, gate);
            keep(layer.up, INTERMEDIATE, HIDDEN, up);
            const long first = INTERMEDIATE * me / team;
            gated(gate + first, up + first, INTERMEDIATE * (me + 1) / team - first);
#pragma omp barrier
            arrange(gate, INTERMEDIATE, x);
            add(layer.down, HIDDEN, INTERMEDIATE, hidden);
#pragma omp barrier
        }
        norm(final_norm);
        keep(head, VOCAB, HIDDEN, logits);
    }
}
""")
