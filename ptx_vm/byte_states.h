#pragma once
// Tests of the states of contiguous bytes (ByteState), many at a time.

#include <cstdint>
#include <cstring>

#include "ptx_vm/memory.h"

namespace flatshard::ptx_vm {

// States of bytes that must not be accessed.
inline constexpr unsigned char kTaboo = kGap | kInFlight | kMbarrier;

// The states of eight bytes at once.
inline uint64_t eight(const unsigned char* state) {
  uint64_t word;
  std::memcpy(&word, state, sizeof(word));
  return word;
}

// Whether all bytes have been written.
inline bool all_written(const unsigned char* state, uint64_t bytes) {
  constexpr uint64_t kAll = kWritten * 0x0101010101010101u;
  if (bytes == 4) {
    uint32_t word;
    std::memcpy(&word, state, sizeof(word));
    return word == static_cast<uint32_t>(kAll);
  }
  // The access of one lane, 16 bytes, needs no loop.
  if (bytes == 16) return ((eight(state) ^ kAll) | (eight(state + 8) ^ kAll)) == 0;
  unsigned char other = 0;
  for (uint64_t i = 0; i < bytes; ++i) other |= static_cast<unsigned char>(state[i] ^ kWritten);
  return other == 0;
}

inline void mark_written(unsigned char* state, uint64_t bytes) {
  if (bytes == 4)
    std::memset(state, kWritten, 4);
  else if (bytes == 16)
    std::memset(state, kWritten, 16);
  else
    std::memset(state, kWritten, bytes);
}

inline bool any(unsigned char kind, const unsigned char* state, uint64_t bytes) {
  if (bytes == 16) return ((eight(state) | eight(state + 8)) & kind * 0x0101010101010101u) != 0;
  unsigned char found = 0;
  for (uint64_t i = 0; i < bytes; ++i) found |= state[i] & kind;
  return found != 0;
}

}  // namespace flatshard::ptx_vm
