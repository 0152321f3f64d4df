#pragma once
// The note in run.log of why a run failed.

#include <string>

namespace flatshard {

// Adds "failed: REASON" to a log, with the lines after the first indented, unless it ends with such a note:
// if several ranks find a failure, the first notes it. A log that does not exist is not created. Never fails.
void note_failure(const std::string& log, const std::string& reason);

}  // namespace flatshard
