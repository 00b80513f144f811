"""Reads records: GetRecords and enhanced fan-out, aggregates, schemas, the byte budget."""
