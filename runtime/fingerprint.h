#pragma once
// Tells files apart without reading all of them: 64 blocks of 64 KiB, evenly spread over all bytes, are
// hashed together with the sizes of the files. Files of up to 4 MiB together are hashed whole. Of larger
// ones, an edit that changes no sampled block and no size goes unnoticed; another corpus, or another model,
// does not.

#include <string>
#include <vector>

namespace flatshard {

// "34,234 bytes with SHA-256 1a2b3c4d5e6f7a8b", of the files in the order given. A function of their content
// alone; their names do not matter. An Error names a file that cannot be read.
std::string fingerprint(const std::vector<std::string>& paths);

}  // namespace flatshard
