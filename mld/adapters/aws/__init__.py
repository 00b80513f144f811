"""Speaking to AWS: clients, credentials, errors, and the calls that are made most often."""
