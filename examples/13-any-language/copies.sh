#!/bin/sh
# Prepares a cluster once and gives a copy of it to each test; needs curl and nothing else.
#
#   pinnace up --ephemeral --control --port 0 --kubeconfig kubeconfig &
#   KUBECONFIG=kubeconfig sh copies.sh
set -eu

server=$(sed -n 's/^ *server: //p' "$KUBECONFIG")
token=$(sed -n 's/^ *token: //p' "$KUBECONFIG")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n 's/^ *certificate-authority-data: //p' "$KUBECONFIG" | base64 -d > "$work/ca.crt"

# call SERVER METHOD PATH [BODY]: prints the body of the answer, and fails for an error.
call() {
    curl --silent --show-error --fail --cacert "$work/ca.crt" --header "Authorization: Bearer $token" \
        --header "Content-Type: application/json" --request "$2" --data "${4-}" "$1$3"
}
# field NAME: prints a text field of the JSON on standard input.
field() { sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }

maps=/api/v1/namespaces/default/configmaps
settings='{"metadata": {"name": "settings"}, "data": {"color": "blue"}}'

# Prepare once.
call "$server" POST $maps "$settings" > "$work/prepared"

# A test: its copy starts with the same objects, and nothing that it does reaches the others.
copy=$(call "$server" POST /control/forks '{"name": "first-test"}' | field server)
call "$copy" DELETE $maps/settings > "$work/deleted"

# The next create in the copy is stored, but its client gets a timeout: does the program cope with that?
call "$copy" POST /control/faults '{"fault": "timeout", "committed": true, "verb": "create", "times": 1}' > "$work/rule"
if call "$copy" POST $maps "$settings" > "$work/lost" 2> "$work/error"; then
    echo "the answer was not lost" >&2
    exit 1
fi
call "$copy" GET $maps/settings > "$work/stored"

# An hour passes in a moment: leases, tokens and CronJobs follow.
call "$copy" POST /control/clock '{"advance": 3600}'

# Each change with its writer.
call "$copy" GET "/control/timeline?name=settings"

call "$server" DELETE /control/forks/first-test > "$work/gone"
call "$server" GET $maps/settings > "$work/kept"
echo "the prepared cluster has not changed"
