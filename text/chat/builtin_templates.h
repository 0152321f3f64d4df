#pragma once
// The built-in chat templates, by name: the files of text/chat/templates/.

#include <map>
#include <string>

namespace flatshard {

const std::map<std::string, const char*>& builtin_templates();

}  // namespace flatshard
