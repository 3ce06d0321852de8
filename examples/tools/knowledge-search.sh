# Searches the repository for what tells about its quality.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/evidence.sh"
enter_repository
evidence
