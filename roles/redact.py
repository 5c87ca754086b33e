"""Takes secrets out of text that is stored or shown."""

import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
LOOKS_LIKE_A_KEY = re.compile(r"\bsk-[A-Za-z0-9_\-*]{8,}")
"""What providers echo of a wrong key that came from somewhere else than this environment."""
SHORTEST = 8
"""Shorter values (`1`, `false`) are no secrets, and replacing them would garble text."""


def redact(text: str, also: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text with the value of every environment variable whose name looks like a secret replaced by its name, and
    those of `also` (name -> value) whatever they are called."""
    secrets = {v: k for k, v in os.environ.items() if len(v) >= SHORTEST and SECRET_NAME.search(k)}
    secrets |= {v: k for k, v in also.items() if len(v) >= SHORTEST}
    for value in sorted(secrets, key=len, reverse=True):  # the longest first: one may hold another
        mark = f"[{secrets[value]}]"
        text = text.replace(value, mark).replace(json.dumps(value)[1:-1], mark)
    return LOOKS_LIKE_A_KEY.sub("[a key]", text)
