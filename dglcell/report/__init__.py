"""Write reports of finished runs as single HTML files."""
