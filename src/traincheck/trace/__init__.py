"""Reading traces: folders of events become Polars frames. Knows the files, no relation.

``open_trace(path)`` is the way in; ``schema`` says what the frames hold; ``build.TraceBuilder`` makes small ones.
"""

from __future__ import annotations

from traincheck.errors import TraceError
from traincheck.trace.manifest import Fault, Lack, Manifest, ProcessInfo
from traincheck.trace.reader import open_trace
from traincheck.trace.trace import Trace

__all__ = ["Fault", "Lack", "Manifest", "ProcessInfo", "Trace", "TraceError", "open_trace"]
