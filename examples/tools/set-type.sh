# Frames the text.
. "$(dirname "$0")/lib.sh"
text=$(text text)
printf '{"leaflet":%s}\n' "$(quoted "[ $text ]")"
