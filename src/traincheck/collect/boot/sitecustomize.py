"""Put first on PYTHONPATH by ``traincheck collect``: hands over to any other sitecustomize, then waits for torch to be
imported.

Runs at the start of every Python process of the run, so it does almost nothing and can never fail loudly.
"""

import os
import sys


def _chain() -> None:
    """Run the sitecustomize that would have run without us, under its own name."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _activate() -> None:
    if not os.environ.get("TRAINCHECK_RUN"):
        return
    try:
        from traincheck.collect.activation import activate
    except Exception as error:
        # Another interpreter, without TrainCheck: the launcher says so at the end.
        try:
            with open(os.path.join(os.environ["TRAINCHECK_RUN"], f"not-watched-{os.getpid()}.txt"), "w") as file:
                file.write(f"{sys.executable}: {type(error).__name__}: {error}\n")
        except OSError:
            pass
        return
    activate()


try:
    _activate()
finally:
    _chain()
