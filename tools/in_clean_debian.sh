# Run by test_wheels.sh in a Debian without compilers: installs a wheel and trains.
#
#     sh -eu -s PYTHON VERSION TAG
python=$1 version=$2 tag=$3
minor=${version%.*}
for tool in cc gcc g++ clang cmake ninja make; do
  if command -v "$tool" >/dev/null; then
    echo "recoup: $tool is installed: this is no clean Debian" >&2
    exit 1
  fi
done
venv=/venv-$tag-$minor
rm -rf "$venv"
"$python" -m venv "$venv"
pip="$venv/bin/pip --disable-pip-version-check --quiet --no-cache-dir"
$pip install "torch==$version" numpy
began=$(date +%s)
$pip install /dist/recoup-*+torch"$minor"-"$tag"-*.whl
seconds=$(($(date +%s) - began))
$pip install 'recoup[bench]' scikit-learn
cd /tmp
"$venv/bin/recoup" --version
"$venv/bin/python" -m recoup doctor
plain=$("$venv/bin/python" /examples/char_gpt.py --steps 5)
tight=$("$venv/bin/recoup" run --quiet --budget 150MiB /examples/char_gpt.py --steps 5)
if [ "$plain" != "$tight" ]; then
  printf 'recoup: other results in a budget:\n%s\n%s\n' "$plain" "$tight" >&2
  exit 1
fi
"$venv/bin/recoup" bench --help >/dev/null
if [ "$seconds" -ge 60 ]; then
  echo "recoup: installing the wheel took $seconds s" >&2
  exit 1
fi
echo "recoup: the wheel for $tag and PyTorch $minor was installed in $seconds s, and trains"
rm -rf "$venv"
