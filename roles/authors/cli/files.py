"""A brief as files, for an author that works in a folder."""

import json

from roles.author import AnyBrief
from roles.briefs import ImplementerBrief
from roles.render import render, render_contract, render_fragment

BRIEF_FILE, ANSWER_FILE, FAULTS_FILE = "BRIEF.md", "ANSWER.json", "FAULTS.md"
TREE = "engine"
"""Folder of the tree that a brief holds."""


def as_files(brief: AnyBrief) -> dict[str, str]:
    """Path -> text: what to do, the tree, and each contract and fragment in a file of its own."""
    said = "\n\n".join(message.content for message in render(brief, folder=True))
    files = {BRIEF_FILE: f"{said}\n"}
    files |= {f"{TREE}/{name}": text for name, text in getattr(brief, "files", {}).items()}
    files |= {f"contracts/{c.id}.md": f"{render_contract(c)}\n" for c in getattr(brief, "contracts", ())}
    files |= {f"fragments/{f.id}.md": f"{render_fragment(f)}\n" for f in getattr(brief, "fragments", ())}
    if isinstance(brief, ImplementerBrief) and brief.shares:
        profile = {"shares": brief.shares, "step_ms": brief.step_ms}
        files["profile.json"] = json.dumps(profile, indent=1) + "\n"
    return files
