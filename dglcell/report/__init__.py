"""Reports of finished runs as single HTML files."""
