"""What is said of an engine of somebody else's: how to start it and ask it, and how it then ran."""

from itertools import takewhile
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from ckb.facts import Accelerator, Dtype, Frozen

Graph = Literal["eager", "graph"]
"""Whether the decode step runs operator by operator, or captured or compiled as one program."""
Dialect = Literal["openai", "sglang"]
"""The protocol of a streamed completion: POST /v1/completions, or SGLang's own POST /generate."""
Counted = Literal["token ids", "usage"]
"""How the harness knows how many tokens an answer has. Pieces of a stream are never counted: one may hold several."""


class Way(Frozen):
    """One way to ask a server for exactly so many greedy tokens."""

    prompt: Literal["token ids", "text"]
    body: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of the request beside prompt, length, temperature 0 and stream."""
    logit_bias: bool = False
    """End tokens are made unlikely by `logit_bias`, for a server that can't be told to ignore them."""


class Preset(Frozen):
    """A known server, as data. Words of a command hold {checkpoint}, {port}, {dtype}, {tensor_parallel}, {context} and
    {config} (the path of a file that holds `config`)."""

    title: str
    command: tuple[str, ...]
    free: tuple[str, ...] = ()
    """Flags of `command` that decide nothing about a fair comparison: words of a user's may set them anew."""
    undoing: tuple[str, ...] = ()
    """Flags by which a user's words would undo what the others of `command` say: their other names, their opposites,
    and what changes the same by another way."""
    graph: dict[Graph, tuple[str, ...]] = Field(default_factory=dict)
    """Words to add for a state of the decode step; a state that is missing here can't be asked for."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Content of the file {config}, its strings filled in like the command's words."""
    graph_config: dict[Graph, dict[str, JsonValue]] = Field(default_factory=dict)
    """What a state of the decode step adds to `config`."""
    keeps_dtype: bool = False
    """It computes in the checkpoint's dtype; there is no flag for another one."""
    accelerators: tuple[Accelerator, ...]
    """Where it runs, as its project says."""
    dialect: Dialect = "openai"
    ways: tuple[Way, ...] = Field(min_length=1)
    """Tried in this order; the first that is answered in full is kept."""
    ready: str = "/health"
    """Path that answers 200 once requests are served."""
    version: tuple[str, ...] = ("/version",)
    """Paths whose JSON may hold `version`."""
    package: str = ""
    """Distribution that is asked for its version beside the program, where no path tells it."""
    notes: tuple[str, ...] = ()
    """What differs from the candidate whatever the flags."""

    @property
    def launch(self) -> tuple[str, ...]:
        """The words that begin its command line: the program, or a Python and its module, and a subcommand."""
        return tuple(takewhile(lambda word: word == "-m" or word[0] not in "-{", self.command))

    @property
    def kept(self) -> frozenset[str]:
        """Flags that no word of a user's may be, as `flag_of` writes them."""
        own = {word for word in self.command[len(self.launch) :] if word.startswith("-")}
        states = {word for words in self.graph.values() for word in words if word.startswith("-")}
        return frozenset(map(flag_of, (own - {*self.free}) | states | {*self.undoing}))

    def undone(self, word: str) -> bool:
        """Whether a word of a user's would change what `command` fixes, in whatever spelling a server takes: also the
        beginning of a long flag, and a short one with its value behind it (-q8)."""
        flag = flag_of(word)
        long = flag.startswith("--") and flag != "--"
        return any(
            flag == kept or (long and kept.startswith(flag)) or (len(kept) == 2 and flag.startswith(kept))
            for kept in self.kept
        )


def flag_of(word: str) -> str:
    """The flag of a word in one spelling: to a server --max_model_len=9 and --max-model-len are the same, and to some
    --override-generation-config.top_k is the flag's field."""
    return word.partition("=")[0].partition(".")[0].replace("_", "-")


class Baseline(Frozen):
    """One server that takes part in a benchmark: started by us from `command`, or somebody's at `url`."""

    command: tuple[str, ...] = ()
    """Words with {port} (and whatever else of Preset's names); the first is a program's full path."""
    folder: str = ""
    """Where the command runs: the folder in which the user wrote it."""
    url: str = ""
    """http://host:port/v1."""
    model: str = ""
    """What the server calls the model; "": the only one it serves, which must have the checkpoint's name at a URL."""
    preset: str = ""
    """Name in PRESETS, or "" for an unknown server."""
    tensor_parallel: int = Field(1, ge=1)
    """Devices that share each matrix: as the candidate."""
    ready_s: float = Field(600.0, gt=0)
    """Most seconds from the start of the command until it serves."""

    @model_validator(mode="after")
    def one_of_both(self) -> "Baseline":
        if bool(self.command) == bool(self.url):
            raise ValueError(f"a baseline is a command or a URL; found {self.command!r} and {self.url!r}")
        return self


class Setting(Frozen):
    """Under which conditions one arm of a benchmark ran."""

    version: str
    """Of the program, or of the engine's tree; says so where nobody tells it."""
    command: str = ""
    """What was started, flags included; "" where it was not by a command line of its own."""
    dtype: Dtype | None
    """None: not known, since the server was not told it by us."""
    tensor_parallel: int | None
    graph: Graph | None
    asked: str
    """How prompts reach it, and what else is in its times."""
    counted: Counted = "token ids"
    not_given: dict[str, str] = Field(default_factory=dict)
    """Metric -> why this arm can't give it."""
    notes: tuple[str, ...] = ()


def differences(candidate: Setting, other: Setting) -> tuple[str, ...]:
    """In what `other` ran otherwise than the candidate, or nobody knows whether it did; each in words."""
    found = []
    for name in ("dtype", "tensor_parallel", "graph"):
        mine, theirs = getattr(candidate, name), getattr(other, name)
        what = name.replace("_", " ")
        if theirs is None:
            found.append(f"{what} not known (the candidate: {mine})")
        elif mine != theirs:
            found.append(f"{what} {theirs} (the candidate: {mine})")
    return tuple(found)
