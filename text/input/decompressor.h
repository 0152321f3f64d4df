#pragma once
// Decompression in steps: gzip in gzip_zlib.cpp, zstd in zstd_libzstd.cpp, or in files that refuse if a build
// lacks the library.

#include <cstddef>
#include <memory>
#include <span>

namespace flatshard {

class Decompressor {
 public:
  virtual ~Decompressor() = default;

  struct Step {
    size_t read = 0, written = 0;
  };
  // Decodes some of `in` into `out`. Does nothing if it needs more of one. Throws an Error if the input is
  // damaged.
  virtual Step decode(std::span<const char> in, std::span<char> out) = 0;
  // Whether the input so far is complete. More may follow, because a file may consist of several streams.
  virtual bool is_complete() const = 0;
};

std::unique_ptr<Decompressor> make_gzip_decompressor();
std::unique_ptr<Decompressor> make_zstd_decompressor();

}  // namespace flatshard
