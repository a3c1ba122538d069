#!/bin/sh
# An operator in shell: each ConfigMap with the label app=shop gets a second one with its stock.
# usage: shell_operator.sh buggy|correct. It polls with curl, so that nothing but a shell is needed.
set -u
server=$(sed -n 's/^ *server: //p' "$KUBECONFIG")
token=$(sed -n 's/^ *token: //p' "$KUBECONFIG")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n 's/^ *certificate-authority-data: //p' "$KUBECONFIG" | base64 -d > "$work/ca.crt"
maps=$server/api/v1/namespaces/default/configmaps

call() {
    method=$1 url=$2 type=$3 body=$4
    curl --silent --fail --cacert "$work/ca.crt" --header "Authorization: Bearer $token" --user-agent shell-operator \
        --header "Content-Type: $type" --request "$method" --data "$body" "$url"
}
mark() { call PATCH "$maps/$1" application/merge-patch+json '{"metadata": {"labels": {"phase": "ready"}}}' > /dev/null; }
stock() {
    call GET "$maps/$1-stock" application/json "" > /dev/null ||
        call POST "$maps" application/json '{"metadata": {"name": "'"$1"'-stock"}, "data": {"apples": "7"}}' > /dev/null
}

while :; do
    names=$(call GET "$maps?labelSelector=app%3Dshop,phase%21%3Dready" application/json "" |
        grep -o '"name":"[^"]*"' | cut -d '"' -f 4)
    for name in $names; do
        if [ "$1" = buggy ]; then
            mark "$name" # A crash after this leaves the shop without its stock.
            stock "$name"
        else
            stock "$name" && mark "$name"
        fi
    done
    sleep 0.1
done
