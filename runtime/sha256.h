#pragma once
// Incremental SHA-256 (FIPS 180-4), for the hash of a run's weights and the checksums of files.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace flatshard {

class Sha256 {
 public:
  void add(const void* data, size_t bytes);
  // The digest of all bytes added so far, as 64 hexadecimal digits. More bytes may be added afterwards.
  std::string hex() const;

 private:
  void compress(const unsigned char* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  uint64_t bytes_ = 0;
};

}  // namespace flatshard
