"""Models: layers put together, and what their sections of a configuration may say."""
