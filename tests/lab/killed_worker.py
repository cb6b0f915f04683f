"""A worker process that a signal ends, or that fails: ``python -m tests.lab.killed_worker``."""

import json
import os
import sys

if __name__ == "__main__":
    request = json.load(sys.stdin)
    if "reason" in request:
        print(json.dumps({"end": "failed", "reason": request["reason"]}))
    else:
        os.kill(os.getpid(), request["signal"])
