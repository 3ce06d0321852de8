# How long is the word?
. "$(dirname "$0")/lib.sh"
word=$(text word)
printf '{"word":%s,"letters":%s}\n' "$(quoted "$word")" "${#word}"
