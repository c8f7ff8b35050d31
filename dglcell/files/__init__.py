"""Files and folders: written whole, owned by one process, read without trust."""
