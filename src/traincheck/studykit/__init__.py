"""What studies have in common: commands that are timed and never left behind, the machine, hashed files, TOML files."""
