"""What the services need of the world, as typing.Protocols."""
