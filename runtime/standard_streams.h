#pragma once
// A program may be started without standard streams (`program >&-`). The next files it opens would then get
// their numbers, and what it says would be written into them.

namespace flatshard {

// Keeps the numbers of missing standard streams from files: every use of such a stream still fails. To be
// called before anything is opened.
void reserve_standard_streams();

}  // namespace flatshard
