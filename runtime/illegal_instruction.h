#pragma once
// Builds are for one level of processors: with FLATSHARD_NATIVE, for the one that compiled them. On an older
// one they end with SIGILL, which by itself explains nothing.

namespace flatshard {

// From now on, SIGILL prints one line on standard error that names the flags of the build, and then ends the
// program as before. `program` is a literal. To be called first in main().
void explain_illegal_instructions(const char* program);

}  // namespace flatshard
