#!/usr/bin/env bash
# Checks the page's source, and that the committed page is what it builds to, byte for byte.
# With the word "packages" it only installs what that needs.
set -euo pipefail
cd "$(dirname "$0")"
page=../src/deepjoin/serve/http/page

note() {
  printf '\n%s\n' "==== NOT CHECKED: the page was not built again to compare it with the committed one."
  printf '%s\n\n' "==== $1"
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || note "node and npm are not installed here."
node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 20 || (+a == 20 && +b >= 19) ? 0 : 1)' ||
  note "node $(node --version) is too old; 20.19 or newer is needed."
# npm writes this file last.
[ node_modules/.package-lock.json -nt package-lock.json ] ||
  npm ci --silent --no-audit --no-fund || note "its packages could not be installed (npm ci failed, see above)."
[ "${1:-}" = packages ] && exit 0

npm run --silent check
npm run --silent test
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npx vite build --logLevel warn --outDir "$built" --emptyOutDir
diff -rq "$built" "$page" || {
  echo "The committed page differs from what its source builds to. Run: make page" >&2
  exit 1
}
echo "The committed page is what its source builds to."
