"""The seed's guides: what the issue asks for is there, with sources, and each is more than a headline."""

import re

import pytest

from ckb.build import read_seed
from ckb.schemas import Guide, Platform
from ckb.search import texts

SEED = read_seed()
GUIDES = [row for row in SEED["guides"] if isinstance(row, Guide)]
PLATFORMS = {row.id for row in SEED["platforms"] if isinstance(row, Platform)}
WANTED = {
    "algorithm": {
        *("continuous-batching", "chunked-prefill", "graph-capture", "prefix-caching", "speculative-draft"),
        *("speculative-mtp", "speculative-prediction", "constrained-decoding", "overlap-scheduling"),
    },
    "library": {"pytorch", "triton", "mlx", "flashinfer", "flash-attention"},
    "tool": {"torch-profiler", "nsight", "rocprof", "perf-and-py-spy", "measuring-a-step"},
    "kernel_authoring": {
        *("triton-matrix-vector", "triton-matmul", "triton-attention", "cpp-openmp-avx", "graph-safe-kernels"),
        *("numerics", "correctness-pitfalls"),
    },
}


@pytest.mark.parametrize("kind", WANTED)
def test_every_subject_has_its_guide(kind: str) -> None:
    assert WANTED[kind] <= {guide.id for guide in GUIDES if guide.kind == kind}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.id))
def test_a_guide_says_something_that_can_be_checked(guide: Guide) -> None:
    assert len(guide.text.split()) >= 100
    assert guide.limits
    assert len(guide.failures) >= 2
    assert guide.provenance.references
    assert not re.search(r"(?i)\b(todo|tbd|fixme|etc\.)", guide.text)
    said = "\n".join(texts(guide))
    for table, word in (("guides", "guide"), ("contracts", "contract"), ("experience", "experience")):
        mentioned = set(re.findall(rf"\b{word} ([a-z]+(?:-[a-z]+)+)", said))
        assert mentioned <= {row.id for row in SEED[table]}, word


def test_an_algorithm_says_for_every_platform_how_far_it_goes() -> None:
    for guide in (guide for guide in GUIDES if guide.kind == "algorithm"):
        told = {id for entry in guide.compatibility for id in entry.platforms if entry.backend == "torch"}
        assert told == PLATFORMS, guide.id
        assert any(entry.state in ("yes", "partial") for entry in guide.compatibility), guide.id
