"""People's own files: tars of photographs, and tables in Parquet. `run_formats.py` is the runner."""
