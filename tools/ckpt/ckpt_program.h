#pragma once
// The program `ckpt`, callable from tests.

#include <iosfwd>

namespace flatshard {

// Returns 0 on success, 1 if verify found damage or diff a difference, and 2 if a command failed, after one
// line on err that starts with "ckpt: ".
int ckpt_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
