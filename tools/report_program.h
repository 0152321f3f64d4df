#pragma once
// The program `report`, callable from tests.

#include <iosfwd>

namespace flatshard {

// Returns 0 on success, and 1 after one line on err that starts with "report: ".
int report_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
