"""Times of steps, taken inside the program: wall and CPU seconds, and the process's peak memory."""

import json
import resource
import time


class Steps:
    def __init__(self, path):
        self.path, self.wall, self.cpu = path, [], []

    def __enter__(self):
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        self.wall.append(time.perf_counter() - self._wall)
        self.cpu.append(time.process_time() - self._cpu)

    def write(self):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with open(self.path, "w") as file:
            json.dump({"wall": self.wall, "cpu": self.cpu, "peak_mb": peak}, file)
