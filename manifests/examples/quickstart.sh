#!/usr/bin/env bash
# quickstart.sh LOCKGATE: runs two demo backends and a gateway that reads the objects of quickstart/, until Ctrl-C.
set -euo pipefail
lockgate=${1:?usage: quickstart.sh LOCKGATE}
objects=$(dirname "$(realpath -- "${BASH_SOURCE[0]}")")/quickstart

leave() {
  trap - EXIT INT TERM
  # The gateway takes a first SIGINT for a drain, which Ctrl-C has sent it, and a second one for an end at once.
  kill -INT "${children[@]}" 2> /dev/null || true
  sleep 0.1
  kill -INT "${children[@]}" 2> /dev/null || true
  wait
}
children=()
trap 'leave; exit 130' INT
trap 'leave; exit 143' TERM
trap leave EXIT

"$lockgate" demo-backend --listen 127.0.0.1:9001 --name stable & children+=($!)
"$lockgate" demo-backend --listen 127.0.0.1:9002 --name canary & children+=($!)
"$lockgate" serve --manifests "$objects" & children+=($!)

until (: < /dev/tcp/127.0.0.1/8080) 2> /dev/null; do
  for child in "${children[@]}"; do kill -0 "$child" 2> /dev/null || { echo "quickstart: a process did not start" >&2; exit 1; }; done
  sleep 0.1
done

cat << 'LINES'

Lockgate serves on port 8080. Try, in another terminal:

  curl -s -H 'host: shop.example.com' http://127.0.0.1:8080/                      # nine of ten answers come from "stable"
  curl -s -H 'host: shop.example.com' -H 'x-user: beta' http://127.0.0.1:8080/    # "canary", with the header x-stage
  curl -s -H 'host: shop.example.com' http://127.0.0.1:8080/items/7               # a pattern
  curl -s -H 'host: shop.example.com' http://127.0.0.1:8080/api/v1/users          # reaches the backend as /users
  curl -si -H 'host: shop.example.com' http://127.0.0.1:8080/old/page             # a redirect
  curl -si -H 'host: shop.example.com' -H 'x-channel: kiosk' http://127.0.0.1:8080/   # another Selector: an answer of the gateway's own
  curl -si http://127.0.0.1:8080/                                                 # no Selector has this host: 404
  curl -s http://127.0.0.1:8081/metrics | grep lockgate_http_requests_total

Edit a file in manifests/examples/quickstart and repeat: the change is served at once. Ctrl-C ends everything.

LINES
wait -n
