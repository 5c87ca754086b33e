"""`enginesmith chat`: a conversation with an engine over its own HTTP server."""

import json
import sys
from collections.abc import Iterator

import httpx


class Conversation:
    """Messages so far, and the server that answers them."""

    def __init__(self, url: str):
        self._client = httpx.Client(base_url=url, timeout=httpx.Timeout(10, read=600))
        self._model = self._client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        self._messages: list[dict[str, str]] = []

    def ask(self, text: str) -> Iterator[str]:
        """Pieces of the answer as they come. A conversation that no longer fits into the engine's context starts anew
        with `text`; raises ServerError for what else the server refuses."""
        self._messages.append({"role": "user", "content": text})
        answer = ""
        try:
            for piece in self._stream():
                answer += piece
                yield piece
        except ServerError as error:
            del self._messages[-1]
            if error.status != 400 or not self._messages:
                raise
            self._messages.clear()
            yield "(the conversation no longer fits into the engine's context: it starts anew)\n"
            yield from self.ask(text)
            return
        self._messages.append({"role": "assistant", "content": answer})

    def _stream(self) -> Iterator[str]:
        body = {"model": self._model, "messages": self._messages, "stream": True}
        with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                raise ServerError(response.status_code, error_message(response))
            for line in response.iter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    yield from (choice["delta"].get("content") or "" for choice in json.loads(data)["choices"])

    def close(self) -> None:
        self._client.close()


class ServerError(Exception):
    """An answer of the engine's server that is no completion."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def error_message(response: httpx.Response) -> str:
    """The message of an OpenAI-style error object, or the body as it is."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def user_lines() -> Iterator[str]:
    """What the user types, line by line; or the lines of a pipe. Empty lines are passed over."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin if line.strip())
        return
    import readline  # noqa: F401  # gives input() editing and history

    print("Ctrl-D ends the conversation.")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return
        if line:
            yield line


def converse(url: str) -> None:
    """Answers line after line on stdout until the input ends."""
    conversation = Conversation(url)
    try:
        for line in user_lines():
            try:
                for piece in conversation.ask(line):
                    print(piece, end="", flush=True)
            except ServerError as error:
                print(f"the engine refuses ({error.status}): {error}", file=sys.stderr)
            print()
    finally:
        conversation.close()
