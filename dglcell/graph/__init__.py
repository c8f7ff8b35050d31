"""Build the cell graph from networks and metabolism, and hold its resident form on a device."""
