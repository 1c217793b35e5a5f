"""Invariant files with their sources, and the provenance of a file that is made from others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.invariants import Invariant, InvariantSet, load_invariants, save_invariants


@dataclass(frozen=True)
class Source:
    """One invariant file, loaded. ``sha256`` is of its bytes on disk."""

    path: str
    sha256: str
    invariants: InvariantSet

    @property
    def references(self) -> list[dict[str, Any]]:
        """The runs it was learned from, as its provenance names them; empty when nothing is known."""
        return [
            reference
            for provenance in self.invariants.provenance
            for reference in _list(provenance.get("references"))
            if isinstance(reference, dict)
        ]

    @property
    def origins(self) -> frozenset[str]:
        """What tells where counts come from: its references, else the content of the file itself."""
        return frozenset(json.dumps(one, sort_keys=True) for one in self.references) or frozenset((self.sha256,))


def read(paths: Sequence[str | Path]) -> list[Source]:
    """Load each file. Raises ``TraincheckError`` as ``load_invariants``."""
    sources = []
    for path in paths:
        if Path(path).is_fifo():
            raise TraincheckError(f"{path} is a pipe, and can't be read twice", "write its content to a file first")
        loaded = load_invariants(path)
        try:
            digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError as error:
            raise TraincheckError(f"cannot read {path}: {error.strerror or error}") from None
        sources.append(Source(str(path), digest, loaded))
    return sources


def concatenated(sources: Sequence[Source]) -> InvariantSet:
    """The invariants of all files in order, numbered as ``check`` with the same files numbers them."""
    return InvariantSet(
        tuple(invariant for source in sources for invariant in source.invariants),
        tuple(place for source in sources for place in source.invariants.places),
        tuple(provenance for source in sources for provenance in source.invariants.provenance),
    )


def save_derived(
    invariants: Sequence[Invariant], path: str | Path, sources: Sequence[Source], how: dict[str, Any]
) -> None:
    """Write the file and its provenance: the references of all sources, the sources, and ``how`` it was made.

    Raises ``TraincheckError`` (unwritable).
    """
    from traincheck import __version__

    references = {json.dumps(one, sort_keys=True): one for source in sources for one in source.references}
    provenance = {
        "kind": "traincheck invariants",
        "traincheck": __version__,
        "relations": sorted({invariant.relation for invariant in invariants}),
        "invariants": len(invariants),
        "references": list(references.values()),
        "made": how,
        "sources": [
            {"file": source.path, "sha256": source.sha256, "invariants": len(source.invariants)} for source in sources
        ],
    }
    save_invariants(invariants, path, provenance)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
