"""What the API shows, as frozen dataclasses, and the figures computed from it. Pure."""
