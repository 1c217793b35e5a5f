"""Planning: a draft becomes a frozen plan, and every later step checks that nothing it rests on has changed."""

from traincheck.pilot.planning.drafts import read_draft
from traincheck.pilot.planning.freezing import freeze
from traincheck.pilot.planning.plans import case_folders, load, write
from traincheck.pilot.planning.verifying import verify

__all__ = ["case_folders", "freeze", "load", "read_draft", "verify", "write"]
