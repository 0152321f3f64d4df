#pragma once
// What an exception says to the person who runs a program. The standard library's own exceptions name neither
// the cause nor the remedy: for those of exhausted memory and threads, this does.

#include <exception>
#include <string>

namespace flatshard {

std::string reason_of(const std::exception& error);

}  // namespace flatshard
