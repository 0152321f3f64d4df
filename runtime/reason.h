#pragma once
// The message of an exception for users. The standard library's exceptions for exhausted memory and threads
// name neither cause nor remedy; this adds both.

#include <exception>
#include <string>

namespace flatshard {

std::string reason_of(const std::exception& error);

// The message, safe for a terminal: one line, or for several errors (runtime/problems.h) their number and one
// line for each of the first 1,000.
std::string report_of(const std::exception& error);

}  // namespace flatshard
