# Judges by the evidence, says how sure it is, and writes a draft of the report.
#
# A search by words cannot tell an `unwrap` in a test from one in the product. So the confidence falls with every kind of
# finding that a person would have to look at, and with every kind of evidence that is missing altogether.
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/lib.sh"
. "$tools/evidence.sh"
output=$(output_directory)

if [ -z "$(number sources)" ]; then
    # Nobody searched before.
    found=$(enter_repository && evidence)
    input="$input $found"
fi

unclear=""
confidence=98
doubt() { # doubt POINTS REASON
    confidence=$((confidence - $1))
    unclear="$unclear${unclear:+
}$2"
}

score=50
tests=$(number tests) sources=$(number sources) documents=$(number documents)
unwrap=$(number unwrap) panic=$(number panic) unsafe=$(number unsafe) todo=$(number todo)
flag() { printf '%s' "$input" | grep -q '"'"$1"'"[[:space:]]*:[[:space:]]*true'; }

flag readme && score=$((score + 10)) || doubt 5 "there is no README to hold the code against"
flag license && score=$((score + 5)) || doubt 2 "there is no licence"
flag ci && score=$((score + 10))
[ "$documents" -gt 3 ] && score=$((score + 5))
if [ "$sources" -eq 0 ]; then
    doubt 40 "there is no code in a language that is known here"
elif [ "$tests" -eq 0 ]; then
    score=$((score - 20))
    doubt 10 "there are no tests in a form that is known here"
else
    score=$((score + 20 * tests / (tests + sources)))
fi
[ "$unwrap" -eq 0 ] || doubt 10 "$unwrap lines unwrap, in tests or not"
[ "$panic" -eq 0 ] || doubt 10 "$panic lines panic on purpose, reachable or not"
[ "$unsafe" -eq 0 ] || doubt 10 "$unsafe places are unsafe, sound or not"
[ "$todo" -le 10 ] || doubt 6 "$todo notes say that something is left to do"
[ "$confidence" -ge 0 ] || confidence=0

if [ "$score" -ge 70 ]; then verdict=good; elif [ "$score" -ge 50 ]; then verdict=fair; else verdict=poor; fi
certainty=$(printf '0.%02d' "$confidence")

draft="$output/assessment-draft.md"
{
    echo "# Assessment"
    echo
    echo "Verdict **$verdict** ($score of 100), confidence $certainty."
    echo
    echo "| evidence | found |"
    echo "| --- | --- |"
    echo "| source files | $sources |"
    echo "| tests | $tests |"
    echo "| documents | $documents |"
    echo "| lines that unwrap | $unwrap |"
    echo "| lines that panic | $panic |"
    echo "| unsafe places | $unsafe |"
    echo "| notes of things to do | $todo |"
    if [ -n "$unclear" ]; then
        echo
        echo "What a person should look at:"
        echo
        printf '%s\n' "$unclear" | sed 's/^/- /'
    fi
} > "$draft.new"
mv "$draft.new" "$draft"

list=""
while IFS= read -r line; do
    [ -z "$line" ] || list="$list${list:+,}$(quoted "$line")"
done <<END
$unclear
END
printf '{"verdict":"%s","score":%s,"confidence":%s,"unclear":[%s],"draft":%s}\n' \
    "$verdict" "$score" "$certainty" "$list" "$(quoted "$draft")"
