"""The replies to requests: JSON bodies, problems, the files of pages."""
