"""Annotating: blinded transcripts go out, milestones come back, and how far annotators agree is computed."""
