#include "ptx_vm/fatbin.h"

#include <cstdint>
#include <cstring>

#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kHeaderMagic = 0xBA55ED50;
constexpr uint16_t kPtxEntry = 1;
// Offsets in the header and in an entry.
constexpr size_t kHeaderSize = 6, kBodySize = 8;
constexpr size_t kEntryKind = 0, kEntryHeaderSize = 4, kPayloadSize = 8, kCompressedSize = 16;

struct Wrapper {
  uint32_t magic, version;
  const unsigned char* data;
  const void* extra;
};

template <class T>
T read(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

std::vector<std::string> read_fatbin(const void* wrapper) {
  const auto* w = static_cast<const Wrapper*>(wrapper);
  check(w->magic == kWrapperMagic, "not a fatbin wrapper: its first word is ", std::hex, w->magic);
  const unsigned char* header = w->data;
  check(read<uint32_t>(header) == kHeaderMagic, "not a fatbin: its first word is ", std::hex,
        read<uint32_t>(header));
  const unsigned char* entry = header + read<uint16_t>(header + kHeaderSize);
  const unsigned char* end = entry + read<uint64_t>(header + kBodySize);
  std::vector<std::string> images;
  while (entry < end) {
    const auto header_size = read<uint32_t>(entry + kEntryHeaderSize);
    const auto payload_size = read<uint64_t>(entry + kPayloadSize);
    if (read<uint16_t>(entry + kEntryKind) == kPtxEntry) {
      check(read<uint32_t>(entry + kCompressedSize) == 0,
            "the PTX of a kernel file is compressed: compile it with nvcc --no-compress");
      const char* text = reinterpret_cast<const char*>(entry + header_size);
      images.emplace_back(text, strnlen(text, payload_size));
    }
    entry += header_size + payload_size;
  }
  return images;
}

}  // namespace flatshard::ptx_vm
