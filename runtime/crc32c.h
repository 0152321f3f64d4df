#pragma once
// CRC-32C (Castagnoli), the checksum of TensorBoard's files.

#include <cstdint>
#include <string_view>

namespace flatshard {

uint32_t crc32c(std::string_view bytes);

}  // namespace flatshard
