python3 -m venv .venv
cp "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/requirements.pth \
  .venv/lib/python3*/site-packages  # pip finds all packages that the tests have
. .venv/bin/activate
cat > app.py <<'END'
from kcl_mld.spark import run


def process(df, ctx):
    return df.where("amount > 0").select("user", "amount")


run(process, schema="user string, amount double", decoder="json")
END
