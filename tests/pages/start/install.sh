cp "$WHEEL" .
# pip finds all packages that the tests have, and asks no index
export PYTHONPATH=$(cat "$(dirname "$WHEEL")"/venv/lib/python3*/site-packages/requirements.pth)
