#pragma once
// Base64, RFC 4648: bytes as text of A-Z, a-z, 0-9, + and /.

#include <optional>
#include <string>
#include <string_view>

namespace flatshard {

std::string to_base64(std::string_view bytes);
// Returns nullopt if the text is not base64. The padding with = may be missing.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace flatshard
