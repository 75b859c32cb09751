"""Stands in for vLLM and for LMCache where only starting, cooling and stopping are under test.

The fixture copies it to ``venv/bin/python`` and ``venv/bin/lmcache``. What it does wrong is read
from ``behaviour.json`` beside the copy, at each request.
"""

import http.server
import json
import pathlib
import sys
import time

FOLDER = pathlib.Path(sys.argv[0]).resolve().parent
IS_STORE = sys.argv[1:2] == ["server"]


def behaviour() -> dict[str, object]:
    content: dict[str, object] = json.loads((FOLDER / "behaviour.json").read_text())
    return content


def status() -> dict[str, object]:
    now = behaviour()
    return {
        "registered_non_cuda_instance_ids": [] if now.get("unregistered") else [7],
        "storage_manager": {
            "store_controller": {
                "pending_keys_count": now.get("pending", 0),
                "in_flight_task_count": 0,
            },
            "prefetch_controller": {"in_flight_request_count": 0},
            "l1_manager": {
                "total_object_count": now.get("dram", 0),
                "memory_used_bytes": 0,
            },
        },
    }


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        content: dict[str, object] = {}
        if self.path == "/status":
            content = status()
        elif self.path == "/reset_prefix_cache":
            content = {"success": not behaviour().get("blocks_held")}
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815 - the names of http.server

    def log_message(self, *_ignored: object) -> None:
        return


def main() -> None:
    if behaviour().get("dies") == ("store" if IS_STORE else "engine"):
        print("ValueError: no such flag", flush=True)
        sys.exit(1)
    while behaviour().get("hangs"):
        time.sleep(0.1)
    flag = "--http-port" if IS_STORE else "--port"
    port = int(sys.argv[sys.argv.index(flag) + 1])
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
