#pragma once
// A program may be started without standard streams (`program >&-`). The next files that it opens would then
// get their descriptors, and its output would be written into those files.

namespace flatshard {

// Reserves the descriptors of missing standard streams. Every use of such a stream still fails. Call it
// before any file is opened.
void reserve_standard_streams();

}  // namespace flatshard
