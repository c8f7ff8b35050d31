"""Reports of finished runs as single HTML files; needs the extra ``plot``."""
