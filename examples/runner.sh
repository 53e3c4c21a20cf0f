#!/usr/bin/env bash
# A complete runner in curl and jq: one slot, kind "command", logs, cancels, nothing lost.
#
#   HOLDFAST_SERVER=http://127.0.0.1:8700 HOLDFAST_TOKEN=(a registration token) examples/runner.sh [NAME [LABEL...]]
#
# It speaks docs/reference/runner-protocol.md.  With HOLDFAST_ONCE=1 it runs one command and leaves.  One request is
# under way at a time, so it does not number them; and it holds nothing between two claims, so one sync after the
# start is enough to give back what a former life of it has left behind.
set -u
server=${HOLDFAST_SERVER:?say where the server is} name=${1:-$(hostname)}
shift
process=
home=$(mktemp -d) && trap '[ -n "$process" ] && kill -KILL -- "-$process"; rm -rf "$home"' EXIT

# The token goes through a file: what stands on a command line, everybody on the machine can read.
auth() { (umask 077 && printf 'Authorization: Bearer %s\n' "$1" >"$home/auth"); }
ask() { # ask METHOD PATH [curl options]: repeated until the server is there; fails where it refuses
    local method=$1 path=$2 ended=52
    shift 2
    # Curl repeats what found no server and what one has no time for, but not what was cut off.
    while [[ $ended =~ ^(18|52|55|56)$ ]]; do
        curl -sS --fail-with-body --retry 1000 --retry-connrefused --retry-max-time 3600 --max-time 60 \
            -X "$method" -H @"$home/auth" -o "$home/answer" "$server/runner/v1/$path" "$@"
        ended=$?
    done
    [ "$ended" = 0 ] && cat "$home/answer" && return
    cat "$home/answer" >&2
    return "$ended"
}
say() { ask POST "$1" -H 'Content-Type: application/json' -d "$2"; }

auth "${HOLDFAST_TOKEN:?give a registration token}"
registered=$(jq -n --arg name "$name" --arg host "$(hostname)" \
    '{name: $name, host: $host, version: "runner.sh", protocols: [1], slots: 1, labels: $ARGS.positional}' \
    --args -- "$@") && registered=$(say register "$registered") || exit 1
auth "$(jq -r .token <<<"$registered")"
say sync '{"held": [], "free": 0}' >/dev/null

ship() { # ship STREAM: send a piece of what the server does not have yet; fails where there is none, or no room
    local stream=$1
    [ -z "${full[$stream]}" ] && [ "$(stat -c %s "$work/$stream")" -gt "${sent[$stream]}" ] || return
    tail -c "+$((sent[$stream] + 1))" "$work/$stream" | head -c 1000000 >"$work/piece"
    ask PATCH "$place/logs/$stream" -H "Holdfast-Offset: ${sent[$stream]}" --data-binary @"$work/piece" \
        -D "$work/head" >/dev/null || return
    # Its answer says what it has.
    sent[$stream]=$(sed -n 's/^holdfast-offset: \([0-9]*\).*/\1/Ip' "$work/head" | tail -n 1)
    ! grep -qi '^holdfast-cut:' "$work/head" || full[$stream]=yes
}
total() { # total STREAM: the size and hash of what was sent, for the end
    local size
    size=$([ -n "${full[$1]}" ] && echo "${sent[$1]}" || stat -c %s "$work/$1")
    jq -n --argjson size "$size" --arg sum "$(head -c "$size" "$work/$1" | sha256sum | cut -d' ' -f1)" \
        '{size: $size, sha256: $sum, gap: false}'
}
finish() { # finish OUTCOME REASON [EXIT CODE]
    jq -n --arg outcome "$1" --arg reason "$2" --argjson code "${3:-null}" --argjson out "$(total stdout)" \
        --argjson err "$(total stderr)" '{outcome: $outcome, reason: $reason, logs: {stdout: $out, stderr: $err},
        result: (if $code == null then null else {exit_code: $code} end)}' >"$work/report"
    ask POST "$place/finish" -H 'Content-Type: application/json' -d @"$work/report"
    echo
}
start() { # start the command of the spec in a process group of its own
    local argv exports
    argv=$(jq -r 'if .args.script then ["/bin/sh", "-c", .args.script] else .args.argv end | @sh' "$work/spec")
    exports=$(jq -r '.args.env // {} | to_entries[] | "export \(.key)=\(.value | @sh)"' "$work/spec")
    jq -j '.args.stdin // ""' "$work/spec" >"$work/stdin"
    (cd "$work/folder" && eval "$exports" && eval "exec setsid -- $argv") \
        <"$work/stdin" >"$work/stdout" 2>"$work/stderr" &
    process=$!
}
watch() { # watch it to its end: its logs go up, a cancel comes down
    local stand rung= told=0 deadline
    deadline=$((SECONDS + $(jq '.timeout | ceil' "$work/spec")))
    while kill -0 "$process" 2>/dev/null; do
        # A piece at a time: whoever writes without end is not to keep a cancel from being heard.
        ship stdout
        ship stderr
        stand=$(say "$place/progress" "{\"alive\": true${rung:+, \"rung\": \"$rung\"}}") || { kill -KILL -- "-$process"; return 1; }
        [ "$(jq '.cancel != null' <<<"$stand")" = true ] && stopped=cancelled
        [ "$SECONDS" -ge "$deadline" ] && stopped=${stopped:-timeout}
        if [ -n "$stopped" ] && [ -z "$rung" ]; then
            rung=interrupted told=$SECONDS
            kill -INT -- "-$process"
        elif [ "$rung" = interrupted ] && [ $((SECONDS - told)) -ge "$grace" ]; then
            rung=killed
            kill -KILL -- "-$process"
        fi
        sleep 0.5
    done
}
run() { # run OFFER: from the acceptance to the report
    local code
    work=$(mktemp -d -p "$home") process= stopped=
    mkdir "$work/folder" && : >"$work/stdout" && : >"$work/stderr"
    declare -gA sent=([stdout]=0 [stderr]=0) full=([stdout]= [stderr]=)
    place=assignments/$(jq -r '"\(.job)/\(.attempt)"' <<<"$1") grace=$(jq '.grace | ceil' <<<"$1")
    say "$place/accept" '{}' >/dev/null || return
    ask GET "$place/spec" >"$work/spec" || return
    if [ "$(sha256sum <"$work/spec" | cut -d' ' -f1)" != "$(jq -r .spec_sha256 <<<"$1")" ]; then
        finish failed spec-mismatch
        return
    fi
    say "$place/start" '{}' >/dev/null || return
    start
    watch || return
    wait "$process"
    code=$? process=
    while ship stdout; do :; done
    while ship stderr; do :; done
    case $stopped in
    cancelled) finish cancelled "exit code $code after a cancel" "$code" ;;
    timeout) finish failed "timeout" "$code" ;;
    *) [ "$code" = 0 ] && finish completed "" 0 || finish failed "exit code $code" "$code" ;;
    esac
}
while true; do
    claimed=$(say claim '{"count": 1, "wait": 20}') || exit 1
    offer=$(jq -c '.offers[0] // empty' <<<"$claimed")
    [ -z "$offer" ] && continue
    run "$offer"
    rm -rf "$work"
    [ -n "${HOLDFAST_ONCE:-}" ] && break
done
say leave '{}' >/dev/null
