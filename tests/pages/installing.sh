python3 -m venv .venv && . .venv/bin/activate
make wheel
python3 -m venv tools
tools/bin/pip install --quiet pipx uv
mkdir bin
ln -s ../tools/bin/pipx ../tools/bin/uv ../tools/bin/uvx bin
export PATH="$PWD/bin:$PATH" PIPX_HOME="$PWD/pipx" PIPX_BIN_DIR="$PWD/pipx-bin"
export UV_CACHE_DIR="$PWD/uv-cache" UV_TOOL_DIR="$PWD/uv-tools"
