"""Reading traces: folders of events become Polars frames. Knows the files, no relation."""
