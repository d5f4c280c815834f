"""A tuner for tests: says what its settings tell it to, then ends, crashes or waits."""

import json
import sys

settings = json.loads(sys.stdin.readline())
print(json.dumps(settings), file=sys.stderr, flush=True)
sys.stdin.readline()
for line in settings["lines"]:
    print(line, flush=True)
if settings["then"] == "wait":
    sys.stdin.read()
if settings["then"] == "crash":
    sys.exit("a line of its log")
