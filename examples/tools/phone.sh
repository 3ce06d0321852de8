# A phone that is played: `phone.sh key|tap|goal`, with the input of the attempt on standard input. There is one phone a user, so
# its state lies in one folder, which must be ours; what is on its screen and what it knows goes to the run as observations.
. "$(dirname "$0")/lib.sh"

folder="${TMPDIR:-/tmp}/granary-phone-$(id -u)"
mkdir -p -m 700 "$folder"
[ -O "$folder" ] || fail "Expected a folder of ours at $folder, but it is somebody else's."
state="$folder/state"
done_file="$folder/done"
screen=home dialog=yes unread=2
[ -f "$state" ] && read -r screen dialog unread < "$state"

# The same attempt twice is one attempt: the second only shows what the first did.
if [ "$(cat "$done_file" 2>/dev/null)" = "$WORK_IDEMPOTENCY_KEY.$WORK_ATTEMPT" ]; then
    what=again
else
    what=$1
fi

case "$what" in
    again) ;;
    key)
        # Home again, with mail that nobody has read: the phone begins anew.
        if [ "$(text key)" = home ]; then
            [ "$screen" = mail ] && [ "$unread" -eq 0 ] && rm -f "$state"
            screen=home
        fi
        ;;
    tap)
        [ "$(text label)" = Mail ] || fail "Expected an icon named Mail, but was asked for \"$(text label)\"."
        screen=mail
        [ "$unread" -eq 0 ] && { dialog=yes unread=2; }
        ;;
    goal)
        case "$(text goal)" in
            "Dismiss the dialog") dialog=no ;;
            "Read the newest unread mail") [ "$unread" -gt 0 ] && unread=$((unread - 1)) ;;
            *) fail "Expected a goal that this phone can reach, but found \"$(text goal)\"." ;;
        esac
        ;;
esac
printf '%s %s %s\n' "$screen" "$dialog" "$unread" > "$state.new" && mv "$state.new" "$state"
printf '%s' "$WORK_IDEMPOTENCY_KEY.$WORK_ATTEMPT" > "$done_file"

if [ "$screen" = mail ] && [ "$dialog" = yes ]; then
    scene='{"title":"Update available","buttons":["Later"]}'
elif [ "$screen" = mail ]; then
    scene="{\"title\":\"Inbox ($unread)\"}"
else
    scene='{"title":"Home","icons":["Mail","Clock"]}'
fi
echo "::observe scene $scene" >&2
echo "::observe world {\"unread\":$unread}" >&2
printf '{"screen":"%s","unread":%s}\n' "$screen" "$unread"
