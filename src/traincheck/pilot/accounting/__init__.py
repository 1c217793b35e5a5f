"""What a trial took, from ledgers alone: clocks, tokens, device-seconds. Pure functions; integers of ns inside."""
