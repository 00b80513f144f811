"""What the daemon costs: ratios against plain boto3, measured in one run."""
