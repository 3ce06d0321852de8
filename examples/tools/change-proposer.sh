# Makes the report out of the draft. Doing it twice leaves the same report.
. "$(dirname "$0")/lib.sh"
output=$(output_directory)
draft="$output/assessment-draft.md"
report="$output/assessment-report.md"
[ -f "$draft" ] || [ -f "$report" ] || fail "Expected a draft at $draft, but found none."

reviewer=$(text reviewedBy)
if [ -f "$draft" ]; then
    {
        cat "$draft"
        echo
        if [ -n "$reviewer" ]; then echo "Reviewed by $reviewer."; else echo "Proposed without a review."; fi
    } > "$report.new"
    mv "$report.new" "$report"
    rm -f "$draft"
fi

verdict=$(text verdict)
if [ -z "$verdict" ]; then
    verdict=$(sed -n 's/^Verdict \*\*\([a-z]*\)\*\*.*/\1/p' "$report")
fi
confidence=$(number confidence)
if [ -n "$reviewer" ]; then by=$(quoted "$reviewer"); else by=null; fi
printf '{"report":%s,"verdict":%s,"confidence":%s,"reviewedBy":%s}\n' \
    "$(quoted "$report")" "$(quoted "$verdict")" "${confidence:-0}" "$by"
