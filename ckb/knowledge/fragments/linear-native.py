# ---
# contract: linear
# title: C++ products for a few vectors, float32 blocks for many
# applies_to: choice.linear == 'native'
# parameters:
#   FEW: [24, 16, 48, 1]
#   SHORT: [48, 0]
#   BLOCK: [4096]
# constants: [DTYPE]
# affects: [linear, head, prefill]
# ---
import torch

SOURCES.append(r"""
// y [m, n] = x [m, k] times w [n, k] transposed; `ordered` has room for x.
extern "C" void products(const weight_t* w, const float* x, float* ordered, float* y, long m, long n, long k) {
    for (long c = 0; c < m; ++c) arrange(x + c * k, k, ordered + c * k);
#pragma omp parallel for num_threads(THREADS) schedule(static, 1)
    for (long t = 0; t < THREADS; ++t) {
        const long from = n * t / THREADS, to = n * (t + 1) / THREADS;
        long c = 0;
        auto keep = [&](long i, long j, float sum) { y[(c + j) * n + i] = sum; };
        for (; c + 4 <= m; c += 4) rows<4>(w, ordered + c * k, k, from, to, keep);
        for (; c + 2 <= m; c += 2) rows<2>(w, ordered + c * k, k, from, to, keep);
        for (; c < m; ++c) rows<1>(w, ordered + c * k, k, from, to, keep);
    }
}
""")


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight [N, K] as the checkpoint stores it, in memory of its own: upcasting in registers is exact."""
    return weight.to(PACKED_DTYPE, copy=True)


def linear(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x [M, K] times the packed weight [N, K] transposed: [M, N], summed in float32."""
    x = x.float().contiguous()
    if len(x) <= FEW:
        y = torch.empty(len(x), len(packed))
        call("products", packed, x, torch.empty_like(x), y, len(x), *packed.shape)
        return y.to(DTYPE)
    blocks = packed.split(BLOCK)
    if len(x) <= SHORT:  # the library is faster with the long side of the product as its rows
        return torch.cat([block.float() @ x.T for block in blocks]).T.to(DTYPE).contiguous()
    return torch.cat([x @ block.float().T for block in blocks], dim=1).to(DTYPE)
