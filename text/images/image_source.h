#pragma once
// The source of an image of a record: a file, or the record itself.

#include <cstdint>
#include <string>

#include "text/images/resize.h"

namespace flatshard {

struct ImageSource {
  std::string path{};   // path of the file; "" if the record holds the bytes
  std::string bytes{};  // content of the file, if the record holds it
  // Whether the record has an object with the path or the bytes, as written by the library datasets, and not
  // a text.
  bool is_object = false;
  bool operator==(const ImageSource&) const = default;
};

// The path, or for an image without one a description for errors: "an image of 312 bytes".
std::string name_of(const ImageSource& image);

// The largest file of an image.
inline constexpr int64_t kMostImageBytes = int64_t{1} << 30;

// Facts about an image besides its pixels.
struct ImageFacts {
  ImageSize size;
  int64_t bytes = 0;         // size of the file
  uint64_t fingerprint = 0;  // see image_fingerprint()
  bool is_object = false;    // copied from the source
};
// Decodes the image to check that it is undamaged. An Error begins with the image's name.
ImageFacts facts_of(const ImageSource& image);

// The bytes of the file. An Error begins with the image's name.
std::string read_image(const ImageSource& image);

// The CRC-64 of the file.
uint64_t image_fingerprint(std::string_view file);
// The fingerprint that earlier versions recorded: a hash of its size, its first 4 KiB and its last 4 KiB.
uint64_t image_ends_fingerprint(std::string_view file);

}  // namespace flatshard
