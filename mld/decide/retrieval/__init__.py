"""How records are fetched, and what becomes of them until they are delivered."""
