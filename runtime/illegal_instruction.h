#pragma once
// A build is for one level of processors: with FLATSHARD_NATIVE, the level of the machine that compiled it.
// On an older processor it ends with SIGILL and no message.

namespace flatshard {

// Installs a handler of SIGILL that prints one line on standard error, which names the flags of the build,
// and then ends the program as before. `program` is a literal. To be called first in main().
void explain_illegal_instructions(const char* program);

}  // namespace flatshard
