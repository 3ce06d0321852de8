# What the example tools share. Plain POSIX shell: nothing has to be installed for the examples.
set -eu

# The whole input, in one line.
input=$(tr '\n' ' ')

# text NAME: the string field NAME of the input; empty if it is not there.
text() {
    printf '%s' "$input" | sed -n 's/.*"'"$1"'"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p'
}

# number NAME: the number field NAME; empty if it is not there.
number() {
    printf '%s' "$input" | sed -n 's/.*"'"$1"'"[[:space:]]*:[[:space:]]*\(-\{0,1\}[0-9][0-9.]*\).*/\1/p'
}

# quoted TEXT: TEXT as a JSON string.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Goes to the repository that is assessed.
enter_repository() {
    repository=$(text repository)
    [ -n "$repository" ] || fail "Expected a field repository in the input, but found none."
    cd "$repository" 2>/dev/null || fail "Expected a folder at $repository, but found none."
}

# The files of the repository: what git knows, or else what lies there.
files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files
    else
        find . -type f -not -path '*/.git/*' -not -path '*/target/*' -not -path '*/node_modules/*' | sed 's|^\./||'
    fi
}

# source_files: those that hold code.
source_files() {
    files | grep -E '\.(rs|go|py|js|ts|java|cs|c|h|cc|cpp|rb|sh)$' || true
}

# occurrences PATTERN: how many lines of code match.
occurrences() {
    source_files | tr '\n' '\0' | xargs -0 -r grep -hE -- "$1" 2>/dev/null | wc -l | tr -d ' '
}

# Where the report goes, as an absolute path; made if it is not there.
output_directory() {
    directory=$(text outputDirectory)
    [ -n "$directory" ] || fail "Expected a field outputDirectory in the input, but found none."
    mkdir -p "$directory"
    (cd "$directory" && pwd)
}
