#pragma once
// The chat templates that are built in: the files of text/chat/templates/, by name.

#include <map>
#include <string>

namespace flatshard {

const std::map<std::string, const char*>& builtin_templates();

}  // namespace flatshard
