"""A generator of events that does what Backend/3 asks for; written for tests."""

import argparse
import datetime
import json
import os
import random

parser = argparse.ArgumentParser()
for name in ("seed", "count"):
    parser.add_argument(f"--{name}", type=int)
for name in ("schema", "mode", "out"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
draws = random.Random(given.seed)
with open(given.schema) as file:
    kinds = json.load(file)["properties"]["kind"]["enum"]
os.makedirs("logs", exist_ok=True)
os.makedirs(os.path.dirname(given.out), exist_ok=True)
with open(given.out, "a" if given.mode == "append" else "w") as out:
    for place in range(given.count):
        event = {"id": f"{given.seed}-{place}", "kind": draws.choice(kinds), "size": draws.random()}
        out.write(json.dumps(event) + "\n")
with open("logs/gen.log", "a") as log:
    log.write(f"{datetime.datetime.now().isoformat()} {vars(given)}\n")
