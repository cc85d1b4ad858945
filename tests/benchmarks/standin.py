"""A contestant that takes no time to start: `Contestant` as `benchmarks/peers/worker.py` asks."""

import os


class Contestant:
    def __init__(self, shape, precision, threads, workers):
        self.parameters = shape["dim"] + 10 * threads + workers
        if precision == "int8":
            raise ValueError("it has no int8")
        self.speed = 2 if os.environ.get("MALLOC_TRIM_THRESHOLD_") else 1

    def train(self, pairs):
        tokens = sum(len(row) for _, targets in pairs for row in targets)
        return tokens / self.speed, tokens / self.speed, tokens

    def decode(self, rows, beams, length):
        print("no answer")
        return len(rows) * length
