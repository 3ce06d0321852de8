# One more round: the words in capitals, with as many stars as there were rounds.
. "$(dirname "$0")/lib.sh"
round=$(number round)
round=$((${round:-0} + 1))
words=$(printf '%s' "$input" | grep -o '"word"[[:space:]]*:[[:space:]]*"[^"]*"' | sed 's/.*"\([^"]*\)"$/\1/' | tr 'a-z' 'A-Z' | paste -sd' ' -)
stars=$(printf '%*s' "$round" '' | tr ' ' '*')
printf '{"round":%s,"text":%s}\n' "$round" "$(quoted "$stars $words $stars")"
