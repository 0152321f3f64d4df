#pragma once
// What a checkpoint holds, for tests to compare.

#include <string>

namespace flatshard::test {

// The checksums of its tensors' files, and the numbers that decide how a run goes on; nothing of the ranks
// that wrote it. An Error unless all its files are whole.
std::string checkpoint_content(const std::string& checkpoint);

std::string read_file(const std::string& path);

}  // namespace flatshard::test
