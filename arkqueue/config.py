"""Configuration: read once, validated whole, frozen, passed down. No other module reads the environment."""
