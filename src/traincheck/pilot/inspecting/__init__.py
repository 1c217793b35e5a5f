"""Trials on Inspect AI: the only part of the pilot that imports it. Accounting and grading read our own ledger."""
