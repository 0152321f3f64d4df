#pragma once
// The content of a checkpoint, for comparisons in tests.

#include <string>

namespace flatshard::test {

// The checksums of a checkpoint's tensor files, and the state that a resumed run depends on, without the
// number of ranks that wrote it. Throws an Error unless all files are complete.
std::string checkpoint_content(const std::string& checkpoint);

std::string read_file(const std::string& path);

}  // namespace flatshard::test
