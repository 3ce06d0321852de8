# Undoes the assessor: its draft goes. Its input is the assessor's output.
. "$(dirname "$0")/lib.sh"
draft=$(text draft)
case "$draft" in
    */assessment-draft.md) rm -f "$draft" ;;
    *) fail "Expected the path of a draft, but found \"$draft\"." ;;
esac
printf '{"removed":%s}\n' "$(quoted "$draft")"
