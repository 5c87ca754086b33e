# ---
# contract: tokenizer
# title: tokenizer.json, and the chat template in a Jinja sandbox
# ---
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def refuse(message: str) -> None:
    """What a chat template calls for a conversation that it can't render."""
    raise ValueError(message)


class Tokenizer:
    """Text to token ids and back, by the files of a checkpoint folder."""

    def __init__(self, folder: Path):
        self.codec = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.codec.no_truncation()
        self.codec.no_padding()
        config, own = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        settings: dict[str, Any] = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        template = own.read_text(encoding="utf-8") if own.is_file() else settings.get("chat_template")
        if isinstance(template, list):  # several named ones: the default is for conversations
            template = {item["name"]: item["template"] for item in template}.get("default")
        jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        jinja.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        jinja.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
        self.template = jinja.from_string(template) if template else None
        special = {name: settings[name] for name in ("bos_token", "eos_token") if settings.get(name)}
        self.special = {name: text["content"] if isinstance(text, dict) else text for name, text in special.items()}

    def encode(self, text: str) -> list[int]:
        return self.codec.encode(text).ids

    def decode(self, ids: list[int]) -> str:
        """The text of the ids, special tokens left out."""
        return self.codec.decode(ids, skip_special_tokens=True)

    def chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """A conversation as the model was trained to read it, up to where its answer starts.

        Raises ValueError if the checkpoint has no chat template, or if the template refuses the conversation.
        """
        if self.template is None:
            raise ValueError("the checkpoint has no chat template: use /v1/completions")
        try:
            text = self.template.render(messages=messages, add_generation_prompt=True, **self.special)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template can't render these messages: {error}") from error
        return self.codec.encode(text, add_special_tokens=False).ids
