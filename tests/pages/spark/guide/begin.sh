python3 -m venv .venv
cp "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/requirements.pth \
  .venv/lib/python3*/site-packages  # pip finds all packages that the tests have
. .venv/bin/activate
