"""The asyncio services: snapshot, decide, effect."""
