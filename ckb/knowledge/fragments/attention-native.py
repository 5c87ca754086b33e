# ---
# contract: attention
# title: C++ for one query position, torch for several
# applies_to: choice.attention == 'native'
# constants: [DTYPE, HEADS, KV_HEADS, HEAD_DIM]
# affects: [attention]
# ---
import torch
import torch.nn.functional as F

SOURCES.append(r"""
extern "C" void attend_all(const float* q, const kv_t* keys, const kv_t* values, long head_stride, long token_stride,
                           long length, float* out) {
#pragma omp parallel num_threads(THREADS)
    {
        std::vector<float> scores(length);
#pragma omp for schedule(static)
        for (long h = 0; h < HEADS; ++h) {
            const long kv = h / (HEADS / KV_HEADS) * head_stride;
            attend(q + h * HEAD_DIM, keys + kv, values + kv, token_stride, length, scores.data(), out + h * HEAD_DIM);
        }
    }
}
""")


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
    """Causal attention of q [M, HEADS, HEAD_DIM], at positions start .. start + M - 1, over keys and values
    [KV_HEADS, start + M, HEAD_DIM]: [M, HEADS * HEAD_DIM]."""
    if len(q) == 1:
        query, out = q.float().contiguous(), torch.empty(1, HEADS * HEAD_DIM)
        call("attend_all", query, keys, values, keys.stride(0), keys.stride(1), start + 1, out)
        return out.to(DTYPE)
    shape = (KV_HEADS, HEADS // KV_HEADS, start + len(q), HEAD_DIM)
    grouped = q.float().view(len(q), *shape[:2], HEAD_DIM).permute(1, 2, 0, 3)
    cached = (t.float()[:, None].expand(shape) for t in (keys, values))
    visible = torch.ones(len(q), start + len(q), dtype=torch.bool).tril(start) if start else None
    mixed = F.scaled_dot_product_attention(grouped, *cached, visible, is_causal=start == 0)
    return mixed.permute(2, 0, 1, 3).reshape(len(q), HEADS * HEAD_DIM).to(DTYPE)
