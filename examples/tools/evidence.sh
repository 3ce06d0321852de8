# What tells about the quality of the repository in the current folder, as one JSON object. Used by the search, and by the
# assessor if nobody searched before it.
has() {
    if files | grep -qiE -- "$1"; then echo true; else echo false; fi
}

evidence() {
    printf '{"todo":%s,"unwrap":%s,"panic":%s,"unsafe":%s,"tests":%s,"sources":%s,"documents":%s,"readme":%s,"license":%s,"ci":%s}\n' \
        "$(occurrences '(TODO|FIXME|XXX)([^A-Za-z]|$)')" \
        "$(occurrences '\.unwrap\(\)')" \
        "$(occurrences '(panic!|todo!|unimplemented!)\(')" \
        "$(occurrences '^[^/]*unsafe[[:space:]]+(\{|fn|impl|extern)')" \
        "$(occurrences '#\[(tokio::)?test\]|def test_|func Test[A-Z]|(^|[^a-z])it\(')" \
        "$(source_files | wc -l | tr -d ' ')" \
        "$(files | grep -ciE '\.(md|rst|adoc)$' || true)" \
        "$(has '^readme')" "$(has '^(license|copying)')" "$(has '^(\.ci/|\.github/workflows/|\.gitlab-ci)')"
}
