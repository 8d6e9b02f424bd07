"""What requests are answered with: JSON bodies, problems, the pages' files."""
