"""What a role worker hands to its author, without Ray: the plain class."""

from pathlib import Path

import pytest

from ckb.build import ensure_store
from ckb.schemas import Experience
from roles.settings import ComposerSettings, LitellmSettings
from roles.transcript import ExchangeRecord, read_transcript
from swarm.crew import RoleWorker
from swarm.spending import Purse
from tests.unit.roles.example_briefs import REVIEWER
from tests.unit.roles.scripted_gateway import ANSWER, Script, query

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # transcripts end with their process


def test_a_model_looks_up_the_version_that_the_run_is_pinned_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    store = ensure_store(tmp_path / "store")
    row = Experience(id="zebra", title="A zebra", kind="debugging", signal="confirmed", text="Zebra.")
    store.append({"experience": [row]}, message="learned meanwhile", by="another run")
    for version, found in ((1, "Nothing verified"), (2, "`zebra` of experience")):
        script = Script(query(words="zebra"), ANSWER)
        folder = tmp_path / f"transcripts{version}"
        settings = LitellmSettings(model="m", max_tokens=100)
        worker = RoleWorker(settings, str(folder), Purse(script, 0, 10**9), version)
        worker.answer(REVIEWER)
        assert script.told[0].startswith(f"Knowledge base version {version}, ")
        assert found in script.told[0]
        exchanges = [r for r in read_transcript(folder) if isinstance(r, ExchangeRecord)]
        assert exchanges[1].sent[0].content == script.told[0], "what was looked up is on record"


def test_the_composer_needs_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_HOME", str(tmp_path))
    RoleWorker(ComposerSettings(), str(tmp_path / "t"), None, 1).answer(REVIEWER)
    assert not (tmp_path / "store").exists()
