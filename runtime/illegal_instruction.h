#pragma once
// A build is for one level of processors: with FLATSHARD_NATIVE, that of the machine that compiled it. On an
// older processor it ends with SIGILL, without a word about the cause.

namespace flatshard {

// From now on, SIGILL prints one line on standard error that names the flags of the build, and then ends the
// program as before. `program` is a literal. To be called first in main().
void explain_illegal_instructions(const char* program);

}  // namespace flatshard
