"""A device: the plain class that an actor is made of. It leases the hardware, judges, times and profiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckb.whole_files import replace_text
from gpu_actors.benchmark_jobs import Benchmark, BenchmarkJob, Profile
from gpu_actors.benchmarker import Benchmarker
from gpu_actors.jobs import EngineJob, Verdict, VerifyJob
from gpu_actors.lease import FOLDER, Lease, physical_devices
from gpu_actors.meter import Meter, Share
from gpu_actors.profiler import profile
from gpu_actors.verifier import Verifier


class Device:
    """One device group of one host. No method imports torch here: tensors live in child processes."""

    def __init__(self, name: str, cache_dir: str | Path, lease_dir: Path = FOLDER, now: Path | None = None):
        """`name`: the accelerator, cpu or cuda. `cache_dir`: reference outputs and compiled kernels. `lease_dir`: lock
        files; another folder than the host's own is for tests, whose timings mean nothing. `now`: file that says, as
        one line, that another run's lease or Hugging Face is waited for; whoever begins something else writes over
        it."""
        self.name = name
        self._cache_dir = Path(cache_dir)
        self._lease_dir = lease_dir
        self._now = now
        self._meter = Meter()

    def __repr__(self) -> str:
        return f"device {self.name}"

    def verify(self, job: VerifyJob) -> Verdict:
        """Runs the gates. A wrong candidate is a Verdict, never an exception."""
        with self._holding(exclusive=False) as share:
            verdict = Verifier(self._cache_dir, self._say).verify(job)
        return verdict.model_copy(update={"device_seconds": share.seconds})

    def benchmark(self, job: BenchmarkJob) -> Benchmark:
        """Times the arms in turn while nobody else of ours uses the device."""
        with self._holding(exclusive=True) as share:
            benchmark = Benchmarker(job, self._cache_dir).run()
        return benchmark.model_copy(update={"device_seconds": share.seconds})

    def profile(self, job: EngineJob) -> Profile:
        """Where a decode step's time goes. An engine that fails under the profiler is a Profile that says so."""
        with self._holding(exclusive=True) as share:
            found = profile(job, self._cache_dir, f"tree {job.tree[:12]}", "profile")
        return found.model_copy(update={"device_seconds": share.seconds})

    @contextmanager
    def _holding(self, *, exclusive: bool) -> Iterator[Share]:
        """Leases the hardware and counts for how long; the wait for it does not count."""
        devices = physical_devices(self.name)
        with (
            Lease(devices, exclusive=exclusive, folder=self._lease_dir, on_wait=self._say),
            self._meter.holding() as share,
        ):
            yield share

    def _say(self, words: str) -> None:
        """Replaces the file in one step: whoever shows it must never find half a line."""
        if self._now:
            replace_text(self._now, words + "\n")
