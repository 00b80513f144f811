"""``kcl-mld acceptance``: the proof on an AWS account of the user's own."""
