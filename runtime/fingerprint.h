#pragma once
// A fingerprint tells files apart by every byte. For files of up to 4 MiB together it is their SHA-256; for
// larger files it is the SHA-256 of the checksums of their blocks (file_sums.h), which threads and ranks
// divide and which keep up with disks. A CRC of 64 bits misses no change within 64 bits, and other edits of a
// block with a probability of 2^-64. The purpose is to notice changes; a file that was made to look like
// another is not recognized.

#include <string>
#include <vector>

#include "runtime/file_sums.h"

namespace flatshard {

// "34,234 bytes with SHA-256 1a2b3c4d5e6f7a8b", or "12,345,678 bytes with block hash 1a2b3c4d5e6f7a8b", for
// the files in the order given. It depends on their content alone, not on their names. The hashes of large
// files are kept for later programs (hash_cache.h). An Error names a file that cannot be read.
std::string fingerprint(const std::vector<std::string>& paths);

// Returns whether fingerprint() would read all bytes of this file.
bool is_to_be_hashed(const std::string& path);
// Keeps the hash of a file for later programs. `version` is the file's version before its sums were computed.
void keep_hash(const FileVersion& version, const FileSums& sums);

// The fingerprint that earlier versions of Flatshard recorded. Of files of more than 4 MiB together it hashes
// only the sizes and 64 blocks of 64 KiB, evenly spread over all bytes.
std::string sampled_fingerprint(const std::vector<std::string>& paths);
// The fingerprint in the form that `recorded` has.
std::string fingerprint_like(const std::string& recorded, const std::vector<std::string>& paths);

}  // namespace flatshard
