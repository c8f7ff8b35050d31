"""Put layers together to models, and define their sections of a configuration."""
