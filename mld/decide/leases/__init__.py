"""Which leases a worker takes and keeps."""
