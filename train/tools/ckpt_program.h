#pragma once
// The program `ckpt` but for its process: from a command line to an exit code.

#include <iosfwd>

namespace flatshard {

// 0 when all is well; 1 where verify has found damage, or diff a difference; 2 where a command could not be
// carried out, after one line on err that begins with "ckpt: ".
int ckpt_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
