"""How the Python servers of this folder are run."""

import json
import socket

import uvicorn


def serve_on_loopback(app):
    """Serves on a free port of 127.0.0.1, and prints {"port": N} once it accepts connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    uvicorn.run(app, fd=listener.fileno(), log_level="warning")
