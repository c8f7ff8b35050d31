"""The cell graph: where its networks and metabolism come from, and its resident form on a device."""
