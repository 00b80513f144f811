"""Version 2: methods take one object with all that there is to know."""
