"""A worker process that a signal ends: ``python -m tests.lab.killed_worker``."""

import json
import os
import sys

if __name__ == "__main__":
    os.kill(os.getpid(), json.load(sys.stdin)["signal"])
