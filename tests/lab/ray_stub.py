"""In place of ``ray_driver``: ``python -m tests.lab.ray_stub`` uses no Ray, and is lost at once."""

import json
import sys


def main() -> None:
    """Say that the first run is done and the second one began, then end as Ray ends a process."""
    settings = json.loads(sys.stdin.readline())
    if settings["address"] == "refused:1":
        answer = {"refused": "host b has torch 1.0."}
        print(json.dumps(answer), flush=True)
        return
    print(json.dumps({"connected": 1}), flush=True)
    for n in range(2):
        assert json.loads(sys.stdin.readline())["run"] == n
    for message in ({"run": 0, "state": "done", "reason": ""}, {"run": 1, "state": "running"}):
        print(json.dumps(message), flush=True)
    print("[2026-11-18 21:04:11,087 E 3 4] a.h:2: No GCS for 20 s. See its log.", file=sys.stderr)


if __name__ == "__main__":
    main()
