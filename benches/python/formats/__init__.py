"""People's own files: tars of photographs, and Parquet. `run_formats.py` is the runner."""
