# Undoes the proposer: its report goes. Its input is the proposer's output.
. "$(dirname "$0")/lib.sh"
report=$(text report)
case "$report" in
    */assessment-report.md) rm -f "$report" ;;
    *) fail "Expected the path of a report, but found \"$report\"." ;;
esac
printf '{"removed":%s}\n' "$(quoted "$report")"
