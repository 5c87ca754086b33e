# ---
# contract: serve-command
# title: Bind first, then load, then serve
# ---
import argparse
import socket
from pathlib import Path

import uvicorn

from .engine import Engine


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the engine over an OpenAI-compatible API.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    try:
        listener = socket.create_server((options.host, options.port))
    except OSError as error:
        parser.exit(2, f"can't listen on {options.host}:{options.port} ({error.strerror}): choose another --port\n")
    app = application(Engine.load(options.checkpoint), options.checkpoint.resolve().name)
    print(f"serving {options.checkpoint.resolve().name} on http://{options.host}:{options.port}/v1", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
