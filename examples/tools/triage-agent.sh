# Which languages, how many files and lines, how large.
. "$(dirname "$0")/lib.sh"
enter_repository

count=$(files | wc -l | tr -d ' ')
[ "$count" -gt 0 ] || fail "Expected files in $(pwd), but found none."
lines=$(files | tr '\n' '\0' | xargs -0 -r cat 2>/dev/null | wc -l | tr -d ' ')
kinds=$(files | sed -n 's/.*\.\([A-Za-z0-9]\{1,8\}\)$/\1/p' | sort | uniq -c | sort -k1,1nr -k2,2 | head -6)
primary=$(source_files | sed 's/.*\.//' | sort | uniq -c | sort -k1,1nr -k2,2 | sed -n '1s/^ *[0-9]* //p')

if [ "$lines" -lt 2000 ]; then size=small; elif [ "$lines" -lt 50000 ]; then size=medium; else size=large; fi

list=$(printf '%s\n' "$kinds" | sed -n 's/^ *\([0-9]*\) \(.*\)$/{"extension":"\2","files":\1}/p' | paste -sd, -)
printf '{"primaryLanguage":%s,"files":%s,"lines":%s,"size":"%s","extensions":[%s]}\n' \
    "$(quoted "${primary:-none}")" "$count" "$lines" "$size" "$list"
